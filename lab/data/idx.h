// IDX, the format of the MNIST family: the bytes 0 0 8 d, d sizes as 32-bit
// big-endian numbers, then unsigned bytes in row-major order.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

namespace tensorion::lab {

// The uint8 tensor in the file, gzip'd or plain, which must have `order` modes.
at::Tensor read_idx(const std::filesystem::path& path, int64_t order);

}  // namespace tensorion::lab
