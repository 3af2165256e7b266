// Parameters that consist of independent tensors, called slices. Each slice is unfolded, orthogonalized and
// scaled separately.
//
//   8 x 512 x 2048 with batch_modes {0}     8 slices of 512 x 2048: a stack of experts
//   1536 x 512 with split_sizes {3}         3 slices of 512 x 512: fused query, key and value
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "tensorion/unfolding.h"

namespace tensorion {

struct Slicing {
  // The modes that enumerate independent tensors, like batch dimensions. The remaining modes are numbered
  // from 0 again, and the option `unfolding` refers to these numbers.
  Modes batch_modes;
  // Blocks along the first remaining mode: one number k for k equal blocks, or the sizes of all blocks.
  std::vector<int64_t> split_sizes;

  // Returns true if parameters are not divided.
  bool is_whole() const { return batch_modes.empty() && split_sizes.empty(); }

  // Throws if a mode is negative or listed twice, or if a size is not positive.
  void check() const;

  // Return the number of tensors that the batch modes of a shape enumerate, and the shapes of the blocks of
  // one of them. Both throw if the shape does not have a batch mode; block_shapes also throws if the blocks
  // do not add up to the size of the mode.
  int64_t batch_size(at::IntArrayRef shape) const;
  std::vector<std::vector<int64_t>> block_shapes(at::IntArrayRef shape) const;

  // Returns the number of slices of a parameter of this shape.
  int64_t count(at::IntArrayRef shape) const {
    return batch_size(shape) * static_cast<int64_t>(block_shapes(shape).size());
  }

  // Returns views of the slices of all tensors. The slices of a tensor are in row-major order of the batch
  // modes, then in the order of the blocks.
  std::vector<at::Tensor> slices(at::TensorList tensors) const;
};

}  // namespace tensorion
