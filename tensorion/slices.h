// Stacks and blocks: parameters that consist of independent tensors, each of which is unfolded,
// orthogonalized and scaled by itself.
//
//   8 x 512 x 2048 with batch_modes {0}     8 tensors of 512 x 2048: a stack of experts
//   1536 x 512 with split_sizes {3}         3 tensors of 512 x 512: fused query, key and value
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "tensorion/unfolding.h"

namespace tensorion {

struct Slicing {
  // The modes that enumerate independent tensors. A slice has the other modes, and `unfolding` counts those.
  Modes batch_modes;
  // Blocks along mode 0 of a slice: one number k for k equal blocks, or the sizes of all blocks.
  std::vector<int64_t> split_sizes;

  // Whether a parameter is one tensor.
  bool is_whole() const { return batch_modes.empty() && split_sizes.empty(); }

  // Throws if a mode is negative or listed twice, or if a size is not positive.
  void check() const;

  // The number of slices along the batch modes of a shape, and the shapes of the blocks of each slice. They
  // throw if the shape lacks a mode or the sizes do not add up to it.
  int64_t batch_size(at::IntArrayRef shape) const;
  std::vector<std::vector<int64_t>> block_shapes(at::IntArrayRef shape) const;

  // How many independent tensors a parameter of this shape has.
  int64_t count(at::IntArrayRef shape) const {
    return batch_size(shape) * static_cast<int64_t>(block_shapes(shape).size());
  }

  // Views of the independent tensors of all `tensors`: by slice in row-major order, then by block.
  std::vector<at::Tensor> slices(at::TensorList tensors) const;
};

}  // namespace tensorion
