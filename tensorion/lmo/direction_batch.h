// The directions of many tensors on one accelerator: batched by the shape of their unfoldings, and found
// without a read from the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "tensorion/lmo.h"
#include "tensorion/polar/newton_schulz.h"

namespace tensorion {

// Tensors [first, first + count) of a list, whose unfoldings are matrices of one shape, or transposes of
// such.
struct DirectionBatch {
  size_t first = 0;
  size_t count = 0;
  int64_t m = 0;  // rows and columns, m <= n
  int64_t n = 0;
  // Of each tensor; "online" chooses between several, those of the balanced shape: others are far from the
  // largest nuclear norm in practice (docs/accelerators.md).
  std::vector<std::vector<Unfolding>> unfoldings;
};

struct DirectionPlan {
  std::vector<size_t> order;  // the list is to be brought into this order
  std::vector<DirectionBatch> batches;
};

// In elements; 256 MiB in fp32.
inline constexpr int64_t kMinDeviceScratch = int64_t{1} << 26;

// Batches as large as the scratch memory allows: the larger of kMinDeviceScratch and what the largest tensor
// needs by itself.
DirectionPlan plan_directions(at::TensorList tensors, const UnfoldingStrategy& strategy);

// Directions that are candidates for the tensors of a batch: all on the unfoldings of one number in
// DirectionBatch::unfoldings.
struct DirectionCandidates {
  std::vector<at::Tensor> x;  // views in the shapes of the tensors
  std::vector<Unfolding> unfoldings;
  // (count): 1 if the tensor's direction is this candidate, else 0. Undefined if there is one candidate only.
  at::Tensor chosen;
};

// Solves batches one after the other, by Newton-Schulz.
class DirectionSolver {
 public:
  // `largest`: the largest magnitudes of the entries of all tensors in the order of the plan, not 0; NaN for
  // those whose directions are to be NaN. Matrices are loaded in its dtype.
  DirectionSolver(const DirectionPlan& plan, const PolarOptions& polar, at::Tensor largest);

  // `load` copies the tensors of the batch into views of their shapes. The result is overwritten by the next
  // call.
  std::vector<DirectionCandidates> solve(const DirectionBatch& batch,
                                         const std::function<void(at::TensorList views)>& load,
                                         const UnfoldingChoices& choices);

 private:
  NewtonSchulzSchedule schedule_;
  at::Tensor largest_;
  at::Tensor loaded_;  // memory for the largest batch, as it is loaded and as it is iterated
  at::Tensor scaled_;
};

}  // namespace tensorion
