// IDX, the file format of MNIST: the bytes 0 0 8 d, then d sizes as 32-bit big-endian integers, then the
// elements as unsigned bytes in row-major order.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

namespace tensorion::lab {

// Reads a uint8 tensor, which must have `order` dimensions. The file may be compressed with gzip.
at::Tensor read_idx(const std::filesystem::path& path, int64_t order);

}  // namespace tensorion::lab
