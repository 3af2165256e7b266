#include "tensorion/slices.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace tensorion {
namespace {

// Returns the batch modes in descending order. Throws if the shape does not have one of them.
Modes descending(const Modes& batch_modes, at::IntArrayRef shape) {
  auto modes = batch_modes;
  std::sort(modes.begin(), modes.end(), std::greater<>());
  for (const int64_t mode : modes) {
    TORCH_CHECK_VALUE(mode >= 0 && mode < static_cast<int64_t>(shape.size()),
                      "[tensorion.step] batch_modes must be in [0, ", shape.size(), "), got ", mode,
                      " for shape ", shape);
  }
  return modes;
}

// Returns the shape without the batch modes.
std::vector<int64_t> slice_shape(const Modes& batch_modes, at::IntArrayRef shape) {
  auto sizes = shape.vec();
  for (const int64_t mode : descending(batch_modes, shape)) sizes.erase(sizes.begin() + mode);
  return sizes;
}

// Returns the sizes of the blocks along mode 0 of a slice.
std::vector<int64_t> block_sizes(const std::vector<int64_t>& split_sizes, at::IntArrayRef slice) {
  TORCH_CHECK_VALUE(!slice.empty(),
                    "[tensorion.step] split_sizes needs a mode that is not a batch mode, got none");
  if (split_sizes.size() == 1) {
    const int64_t count = split_sizes[0];
    TORCH_CHECK_VALUE(slice[0] % count == 0, "[tensorion.step] expected a size that is divisible into ",
                      count, " equal blocks, got ", slice[0]);
    return std::vector<int64_t>(count, slice[0] / count);
  }
  const auto sum = std::accumulate(split_sizes.begin(), split_sizes.end(), int64_t{0});
  TORCH_CHECK_VALUE(sum == slice[0], "[tensorion.step] expected split_sizes that add up to ", slice[0],
                    ", got ", at::IntArrayRef(split_sizes), ", which add up to ", sum);
  return split_sizes;
}

}  // namespace

void Slicing::check() const {
  for (const int64_t mode : batch_modes) {
    TORCH_CHECK_VALUE(mode >= 0, "[tensorion.step] batch_modes must not be negative, got ", mode);
    TORCH_CHECK_VALUE(std::count(batch_modes.begin(), batch_modes.end(), mode) == 1,
                      "[tensorion.step] batch_modes must be distinct, got ", mode, " twice");
  }
  for (const int64_t size : split_sizes) {
    TORCH_CHECK_VALUE(size > 0, "[tensorion.step] split_sizes must be positive, got ", size);
  }
}

int64_t Slicing::batch_size(at::IntArrayRef shape) const {
  int64_t count = 1;
  for (const int64_t mode : descending(batch_modes, shape)) count *= shape[mode];
  return count;
}

std::vector<std::vector<int64_t>> Slicing::block_shapes(at::IntArrayRef shape) const {
  const auto slice = slice_shape(batch_modes, shape);
  if (split_sizes.empty()) return {slice};
  std::vector<std::vector<int64_t>> shapes;
  for (const int64_t size : block_sizes(split_sizes, slice)) {
    shapes.push_back(slice);
    shapes.back()[0] = size;
  }
  return shapes;
}

std::vector<at::Tensor> Slicing::slices(at::TensorList tensors) const {
  std::vector<at::Tensor> found;
  for (const auto& tensor : tensors) {
    // Select along the last batch mode first, so that the indices of the others stay valid. The mode that is
    // selected last is the outermost in the result.
    std::vector<at::Tensor> views{tensor};
    for (const int64_t mode : descending(batch_modes, tensor.sizes())) {
      std::vector<at::Tensor> finer;
      for (int64_t i = 0; i < tensor.size(mode); ++i) {
        for (const auto& view : views) finer.push_back(view.select(mode, i));
      }
      views = std::move(finer);
    }
    if (split_sizes.empty()) {
      found.insert(found.end(), views.begin(), views.end());
      continue;
    }
    const auto sizes = block_sizes(split_sizes, slice_shape(batch_modes, tensor.sizes()));
    for (const auto& view : views) {
      const auto blocks = view.split_with_sizes(sizes, 0);
      found.insert(found.end(), blocks.begin(), blocks.end());
    }
  }
  return found;
}

}  // namespace tensorion
