// Data sets as they are on disk, before they are loaded into a Dataset.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

namespace tensorion::lab {

// Either `pixels` (uint8, N x C x H x W) or `files` (JPEG or PNG) is set.
struct RawSplit {
  at::Tensor pixels;
  std::vector<std::filesystem::path> files;
  std::vector<int64_t> labels;
};

// Labels index `classes`.
struct RawSplits {
  RawSplit train;
  RawSplit test;
  std::vector<std::string> classes;
};

// The indices, ascending, of `limit` random samples (all, if there are no more), with the same number of
// every class as long as it has enough.
std::vector<int64_t> balanced_subset(const std::vector<int64_t>& labels, int64_t limit, uint64_t seed);

// The samples at `indices`, in that order.
RawSplit select(const RawSplit& split, const std::vector<int64_t>& indices);

}  // namespace tensorion::lab
