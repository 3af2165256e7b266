#include "lab/io/checksum.h"

#include <zlib.h>

#include <array>
#include <cstdio>

namespace tensorion::lab {

void Checksum::add(const void* data, size_t bytes) {
  if (bytes == 0) return;  // given a null pointer, zlib returns the initial value
  value_ = static_cast<uint32_t>(::crc32_z(value_, static_cast<const Bytef*>(data), bytes));
}

std::string Checksum::str() const {
  std::array<char, sizeof(kZeroChecksum)> text{};
  std::snprintf(text.data(), text.size(), "%08x", static_cast<unsigned>(value_));
  return text.data();
}

size_t find_checksum(const std::string& header, const std::string& checksum) {
  // JSON escapes the quotes inside names and values, so the text below can only be the entry itself.
  const std::string key = std::string("\"") + kChecksumKey + "\":\"";
  const size_t found = header.find(key + checksum + '"');
  return found == std::string::npos ? found : found + key.size();
}

}  // namespace tensorion::lab
