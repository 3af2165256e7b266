// Data sets as they are stored on disk, before they are loaded into a Dataset.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

namespace tensorion::lab {

// Either `pixels` (uint8, N x C x H x W) or `files` (JPEG or PNG images) is set.
struct RawSplit {
  at::Tensor pixels;
  std::vector<std::filesystem::path> files;
  std::vector<int64_t> labels;
};

// A label is an index into `classes`.
struct RawSplits {
  RawSplit train;
  RawSplit test;
  std::vector<std::string> classes;
};

// Returns the sorted indices of `limit` random samples, or of all samples if there are fewer. Each class gets
// the same number of samples, unless it has too few.
std::vector<int64_t> balanced_subset(const std::vector<int64_t>& labels, int64_t limit, uint64_t seed);

// Returns the samples at `indices`, in that order.
RawSplit select(const RawSplit& split, const std::vector<int64_t>& indices);

}  // namespace tensorion::lab
