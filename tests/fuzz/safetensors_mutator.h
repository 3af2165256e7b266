// A mutator that lets libFuzzer change the header and the data of a safetensors file separately. Most of the
// time it corrects the length and the checksum, because otherwise the first checks of the parser would reject
// nearly every change.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "lab/io/checksum.h"

// Provided by libFuzzer. It is missing in builds that only replay a corpus.
extern "C" __attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// Writes the checksum of the file into its header, if the header has one.
inline void seal(std::string& file) {
  const auto key = std::string("\"") + tensorion::lab::kChecksumKey + "\":\"";
  const std::string zeros = tensorion::lab::kZeroChecksum;
  const size_t found = file.find(key);
  if (found == std::string::npos || file.size() - found < key.size() + zeros.size()) return;
  file.replace(found + key.size(), zeros.size(), zeros);
  tensorion::lab::Checksum checksum;
  checksum.add(file.data(), file.size());
  file.replace(found + key.size(), zeros.size(), checksum.str());
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  constexpr size_t kLengthBytes = 8;
  uint64_t length = 0;
  if (size >= kLengthBytes) std::memcpy(&length, data, kLengthBytes);
  if (seed % 8 == 0 || size < kLengthBytes || length > size - kLengthBytes) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  const auto* begin = reinterpret_cast<const char*>(data) + kLengthBytes;
  std::string parts[] = {{begin, length}, {begin + length, size - kLengthBytes - length}};
  auto& part = parts[seed % 8 == 1];
  const size_t room = max_size - (size - part.size());
  const size_t old_size = part.size();
  part.resize(std::max(old_size, room));
  part.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(part.data()), old_size, room));
  length = parts[0].size();
  std::string file = std::string(reinterpret_cast<const char*>(&length), kLengthBytes) + parts[0] + parts[1];
  seal(file);
  std::memcpy(data, file.data(), file.size());
  return file.size();
}
