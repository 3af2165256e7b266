// Runs the updates of the tensors of a step on the CPU: their order, and the number of threads of each.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <vector>

#include "tensorion/core/parallel.h"
#include "tensorion/lmo.h"

namespace tensorion {

// The estimated cost of the update of a tensor.
struct UpdateCost {
  int64_t unfolding;  // elements of the unfolded matrix
  int64_t memory;     // elements of scratch memory
  double products;    // multiplications
};

// For "online", the size of the unfolding is that of the balanced one.
inline UpdateCost estimate_cost(at::IntArrayRef shape, const UnfoldingStrategy& strategy) {
  const auto unfolding = strategy.choose(shape);
  const int64_t m = std::min(unfolding.rows(), unfolding.cols());
  const int64_t n = std::max(unfolding.rows(), unfolding.cols());
  // The unfolding, the Gram matrix and two inverses. "online" needs less before its choice is made: the Gram
  // matrices of two unfoldings, and two determinants of one of them or the second unfolding.
  return {m * n, m * n + 3 * m * m, static_cast<double>(m) * m * (n + m)};
}

// The scratch memory that a step may use, as a multiple of the largest unfolding. The update of that tensor
// alone needs as much.
inline constexpr int64_t kScratchBudgetFactor = 5;

// Minimum scratch budget in elements (16 MiB in fp32); too small to matter.
inline constexpr int64_t kMinScratchBudget = int64_t{1} << 22;

// Calls update(i) for the tensors at the indices `order`, which are on the CPU. Tensors that are so small
// that the scratch budget allows one per thread are updated in parallel, on one thread each. The larger
// tensors are updated before them, one at a time on all threads. Within both sets, the most expensive tensor
// comes first.
template <typename Update>
void for_each_tensor(at::TensorList tensors, std::vector<size_t> order, const UnfoldingStrategy& strategy,
                     Update update) {
  std::vector<UpdateCost> costs(tensors.size());
  int64_t budget = kMinScratchBudget;
  for (const size_t i : order) {
    costs[i] = estimate_cost(tensors[i].sizes(), strategy);
    budget = std::max(budget, kScratchBudgetFactor * costs[i].unfolding);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return costs[a].products > costs[b].products; });
  const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  std::vector<size_t> small;
  for (const size_t i : order) {
    if (threads > 1 && threads * costs[i].memory <= budget) {
      small.push_back(i);
    } else {
      update(i);
    }
  }
  for_each_dynamically(static_cast<int64_t>(small.size()), threads, [&](int64_t i) { update(small[i]); });
}

}  // namespace tensorion
