// The CRC-32 checksum of a safetensors file, which is stored in the metadata of the same file:
//
//   "__metadata__":{"tensorion_crc32":"0f1e2d3c", ...}
//
// The checksum covers all bytes of the file; its own eight digits count as zeros. To other readers it is an
// ordinary metadata entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tensorion::lab {

inline constexpr char kChecksumKey[] = "tensorion_crc32";
inline constexpr char kZeroChecksum[] = "00000000";

class Checksum {
 public:
  void add(const void* data, size_t bytes);
  std::string str() const;  // 8 hexadecimal digits

 private:
  uint32_t value_ = 0;
};

// Returns the position of the checksum in a header that write_safetensors wrote, or npos if it is missing.
size_t find_checksum(const std::string& header, const std::string& checksum);

}  // namespace tensorion::lab
