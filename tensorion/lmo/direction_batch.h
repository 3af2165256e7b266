// Computes the directions X = fold(polar(unfold(M))) of many tensors on one accelerator. Tensors whose
// unfoldings have the same shape are batched. Nothing synchronizes with the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "tensorion/lmo.h"
#include "tensorion/polar/newton_schulz.h"

namespace tensorion {

// The tensors [first, first + count) of a list. Their unfoldings, or the transposes of these, are m x n
// matrices.
struct DirectionBatch {
  size_t first = 0;
  size_t count = 0;
  int64_t m = 0;  // m <= n
  int64_t n = 0;
  // The candidate unfoldings of each tensor. "online" has all unfoldings with the shape of the balanced one,
  // because others rarely come close to the largest nuclear norm (docs/accelerators.md).
  std::vector<std::vector<Unfolding>> unfoldings;
};

struct DirectionPlan {
  std::vector<size_t> order;  // batches refer to the list in this order
  std::vector<DirectionBatch> batches;
};

// Minimum scratch budget in elements (256 MiB in fp32).
inline constexpr int64_t kMinDeviceScratch = int64_t{1} << 26;

// Returns batches that are as large as the scratch budget allows. The budget is the maximum of
// kMinDeviceScratch and the memory that the largest tensor needs.
DirectionPlan plan_directions(at::TensorList tensors, const UnfoldingStrategy& strategy);

// Candidate directions for the tensors of a batch, one for each tensor. They are the polar factors of the
// unfoldings with the same index in DirectionBatch::unfoldings[i].
struct DirectionCandidates {
  std::vector<at::Tensor> x;  // views in the shapes of the tensors
  std::vector<Unfolding> unfoldings;
  // (count): 1 if the tensor's direction is this candidate, else 0. Undefined if there is only one candidate.
  at::Tensor chosen;
};

// Computes the directions of batches one at a time, by Newton-Schulz.
class DirectionSolver {
 public:
  // `largest` holds the largest magnitude of the elements of each tensor, in the order of the plan. It must
  // not contain 0. If it is NaN for a tensor, the direction of that tensor is NaN. Matrices are loaded in its
  // dtype.
  DirectionSolver(const DirectionPlan& plan, const PolarOptions& polar, at::Tensor largest);

  // Returns one element for each candidate. `load` must copy the tensors of the batch into the given views,
  // which have the shapes of the tensors. The next call overwrites the result.
  std::vector<DirectionCandidates> solve(const DirectionBatch& batch,
                                         const std::function<void(at::TensorList views)>& load,
                                         const UnfoldingChoices& choices);

 private:
  NewtonSchulzSchedule schedule_;
  at::Tensor largest_;
  at::Tensor loaded_;  // buffer for the matrices of the largest batch
  at::Tensor scaled_;  // buffer for the same matrices, scaled, in the dtype of the iteration
};

}  // namespace tensorion
