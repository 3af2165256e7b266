// Lets libFuzzer change the header and the data of a safetensors file each on its own, with a length that
// fits, most of the time: otherwise nearly every change ends at the file's first check.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

// libFuzzer's; there is none where a corpus is only replayed.
extern "C" __attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

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
  const std::string file =
      std::string(reinterpret_cast<const char*>(&length), kLengthBytes) + parts[0] + parts[1];
  std::memcpy(data, file.data(), file.size());
  return file.size();
}
