// What a reader finds: labelled pictures, decoded or still in their files.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

namespace tensorion::lab {

// One split. Either `pixels` (uint8, N x C x H x W) or `files` (JPEG) is set.
struct Samples {
  at::Tensor pixels;
  std::vector<std::filesystem::path> files;
  std::vector<int64_t> labels;
};

// A data set as it lies on disk. Labels index `classes`.
struct Source {
  Samples train;
  Samples test;
  std::vector<std::string> classes;
};

// The indices, ascending, of `limit` random samples (all, if there are not
// more), as many of every class as of the others while there are enough.
std::vector<int64_t> balanced_subset(const std::vector<int64_t>& labels, int64_t limit, uint64_t seed);

// The samples at `indices`, in that order.
Samples select(const Samples& samples, const std::vector<int64_t>& indices);

}  // namespace tensorion::lab
