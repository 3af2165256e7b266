// The CRC-32 of a safetensors file, which the file itself holds in its metadata:
//
//   "__metadata__":{"tensorion_crc32":"0f1e2d3c", ...}
//
// It is that of all bytes of the file, with zeros in its own place. Readers that do not know it see an
// ordinary entry of the metadata.
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
  std::string str() const;  // 8 digits

 private:
  uint32_t value_ = 0;
};

// The position of this checksum in a header that write_safetensors wrote; npos if it is not there.
size_t find_checksum(const std::string& header, const std::string& checksum);

}  // namespace tensorion::lab
