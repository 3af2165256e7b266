#include "lab/data/raw_split.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "lab/data/random.h"

namespace tensorion::lab {

std::vector<int64_t> balanced_subset(const std::vector<int64_t>& labels, int64_t limit, uint64_t seed) {
  TORCH_CHECK_VALUE(limit >= 1,
                    "[tensorion.data] the limit on the number of samples must be at least 1, got ", limit);
  const auto count = static_cast<int64_t>(labels.size());
  limit = std::min(limit, count);
  const int64_t classes = labels.empty() ? 0 : *std::max_element(labels.begin(), labels.end()) + 1;
  std::vector<std::vector<int64_t>> members(classes);
  for (const int64_t i : random_permutation(count, Random(seed, Random::Purpose::kSubset))) {
    members[labels[i]].push_back(i);
  }
  // Each round takes one sample from every class that has any left.
  std::vector<int64_t> chosen;
  for (int64_t round = 0; static_cast<int64_t>(chosen.size()) < limit; ++round) {
    for (const int64_t c : random_permutation(classes, Random(seed, Random::Purpose::kSubset, round + 1))) {
      if (static_cast<int64_t>(chosen.size()) == limit) break;
      if (round < static_cast<int64_t>(members[c].size())) chosen.push_back(members[c][round]);
    }
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

RawSplit select(const RawSplit& split, const std::vector<int64_t>& indices) {
  RawSplit out;
  if (split.pixels.defined()) out.pixels = split.pixels.index_select(0, at::tensor(indices, at::kLong));
  for (const int64_t i : indices) {
    if (!split.pixels.defined()) out.files.push_back(split.files[i]);
    out.labels.push_back(split.labels[i]);
  }
  return out;
}

}  // namespace tensorion::lab
