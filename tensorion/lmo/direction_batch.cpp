#include "tensorion/lmo/direction_batch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "tensorion/lmo/direction.h"
#include "tensorion/polar/newton_schulz_batch.h"

namespace tensorion {
namespace {

// The sides m <= n of a matrix or its transpose.
struct Sides {
  int64_t m, n;
  bool operator==(const Sides&) const = default;
};

Sides sides(const Unfolding& unfolding) {
  return {std::min(unfolding.rows(), unfolding.cols()), std::max(unfolding.rows(), unfolding.cols())};
}

// Returns the unfolding of the strategy or, for "online", all unfoldings with the shape of the balanced one.
std::vector<Unfolding> candidates(at::IntArrayRef shape, const UnfoldingStrategy& strategy) {
  const auto chosen = strategy.choose(shape);
  if (!strategy.is_online() || effective_order(shape) < 2) return {chosen};
  std::vector<Unfolding> found;
  for (const auto& modes : unfoldings(shape)) {
    const Unfolding unfolding(shape, modes);
    if (sides(unfolding) == sides(chosen)) found.push_back(unfolding);
  }
  return found;
}

// Returns the scratch memory for one tensor of a batch, in fp32 elements. For each candidate this is one
// matrix in fp32, and three matrices and five Gram matrices in fp16.
int64_t scratch_elements(const Sides& sides, size_t candidates) {
  return static_cast<int64_t>(candidates) * (5 * sides.m * sides.n + 5 * sides.m * sides.m) / 2;
}

// Folds a matrix of size m x n, transposed if necessary, to the shape of the tensor. Returns a view.
at::Tensor folded(const Unfolding& unfolding, const at::Tensor& matrix) {
  return unfolding.fold(unfolding.rows() > unfolding.cols() ? matrix.mT() : matrix);
}

int64_t matrix_count(const DirectionBatch& batch) {
  return static_cast<int64_t>(batch.count * batch.unfoldings[0].size());
}

// Reshapes one value per matrix, so that it broadcasts over a batch of matrices.
at::Tensor per_matrix(const at::Tensor& values) { return values.view({-1, 1, 1}); }

// Returns a mask over the tensors for each candidate: 1 if it is the stored choice, else 0. If the stored
// choice is not a candidate, which can happen if it was made on the CPU, the first candidate is chosen.
std::vector<at::Tensor> read_choices(const DirectionBatch& batch, at::TensorList choices) {
  const auto indices = at::stack(choices);
  std::vector<at::Tensor> chosen(batch.unfoldings[0].size());
  for (size_t c = 1; c < chosen.size(); ++c) {
    chosen[c] = indices.eq(unfolding_index(batch.unfoldings[0][c])).to(at::kFloat);
    chosen[0] = c == 1 ? 1 - chosen[c] : chosen[0] - chosen[c];
  }
  return chosen;
}

void write_choices(const DirectionBatch& batch, const std::vector<at::Tensor>& chosen,
                   at::TensorList choices) {
  at::Tensor indices;
  for (size_t c = 0; c < chosen.size(); ++c) {
    const auto selected = chosen[c] * unfolding_index(batch.unfoldings[0][c]);
    indices = c == 0 ? selected : indices + selected;
  }
  at::_foreach_copy_(choices, indices.unbind());
}

}  // namespace

DirectionPlan plan_directions(at::TensorList tensors, const UnfoldingStrategy& strategy) {
  // The key is (m, n, whether the dtype is fp64, shape). The shape is empty if a tensor has only one
  // candidate. Tensors with several candidates are batched by shape, so that the candidates of a batch are
  // the same.
  using Key = std::tuple<int64_t, int64_t, bool, std::vector<int64_t>>;
  struct Group {
    std::vector<size_t> members;
    std::vector<std::vector<Unfolding>> unfoldings;
  };
  std::map<Key, Group> groups;
  int64_t budget = kMinDeviceScratch;
  for (size_t i = 0; i < tensors.size(); ++i) {
    auto found = candidates(tensors[i].sizes(), strategy);
    const auto [m, n] = sides(found[0]);
    const auto shape = found.size() > 1 ? tensors[i].sizes().vec() : std::vector<int64_t>{};
    budget = std::max(budget, scratch_elements({m, n}, found.size()));
    auto& group = groups[{m, n, tensors[i].scalar_type() == at::kDouble, shape}];
    group.members.push_back(i);
    group.unfoldings.push_back(std::move(found));
  }
  DirectionPlan plan;
  for (const auto& [key, group] : groups) {
    const auto& [m, n, is_double, shape] = key;
    const auto tensor_cost = std::max<int64_t>(1, scratch_elements({m, n}, group.unfoldings[0].size()));
    const auto batch_size = static_cast<size_t>(std::max<int64_t>(1, budget / tensor_cost));
    for (size_t first = 0; first < group.members.size(); first += batch_size) {
      const auto count = std::min(batch_size, group.members.size() - first);
      DirectionBatch batch{plan.order.size(), count, m, n, {}};
      for (size_t i = first; i < first + count; ++i) {
        plan.order.push_back(group.members[i]);
        batch.unfoldings.push_back(group.unfoldings[i]);
      }
      plan.batches.push_back(std::move(batch));
    }
  }
  return plan;
}

DirectionSolver::DirectionSolver(const DirectionPlan& plan, const PolarOptions& polar, at::Tensor largest)
    : schedule_(newton_schulz_schedule(polar, largest.device().type())), largest_(std::move(largest)) {
  int64_t elements = 0;
  for (const auto& batch : plan.batches)
    elements = std::max(elements, matrix_count(batch) * batch.m * batch.n);
  loaded_ = at::empty({elements}, largest_.options());
  scaled_ = at::empty({elements}, largest_.options().dtype(iteration_dtype(schedule_.steps)));
}

std::vector<DirectionCandidates> DirectionSolver::solve(const DirectionBatch& batch,
                                                        const std::function<void(at::TensorList views)>& load,
                                                        const UnfoldingChoices& choices) {
  const auto count = static_cast<int64_t>(batch.count);
  const auto candidates = static_cast<int64_t>(batch.unfoldings[0].size());
  const bool chooses = candidates > 1 && choices.decide;
  const bool reuses = candidates > 1 && !choices.decide;
  const auto matrices = loaded_.narrow(0, 0, matrix_count(batch) * batch.m * batch.n)
                            .view({candidates, count, batch.m, batch.n});
  for (int64_t c = 0; c < candidates; ++c) {
    std::vector<at::Tensor> views;
    for (int64_t i = 0; i < count; ++i) views.push_back(folded(batch.unfoldings[i][c], matrices[c][i]));
    load(views);
  }
  auto divisors = largest_.narrow(0, static_cast<int64_t>(batch.first), count);
  const double margin = half_precision_margin(batch.n);
  if (margin > 1) divisors = divisors * margin;
  auto scaled = scaled_.narrow(0, 0, matrices.numel()).view(matrices.sizes());
  at::div_out(scaled, matrices, per_matrix(divisors));
  std::vector<at::Tensor> chosen(candidates);
  if (reuses) {
    chosen = read_choices(batch, choices.tensors);
    auto kept = scaled[0];
    // With weights 0 and 1, lerp selects one of its arguments.
    for (int64_t c = 1; c < candidates; ++c)
      kept = at::lerp(kept, scaled[c], per_matrix(chosen[c].to(scaled.scalar_type())));
    scaled = kept;
  }
  const auto [solved, attained] =
      newton_schulz_batch(scaled.view({-1, batch.m, batch.n}), schedule_, chooses);
  if (chooses) {
    const auto best = attained.view({candidates, count}).argmax(0);
    for (int64_t c = 0; c < candidates; ++c) chosen[c] = best.eq(c).to(at::kFloat);
    if (!choices.tensors.empty()) write_choices(batch, chosen, choices.tensors);
  }
  std::vector<DirectionCandidates> result;
  for (int64_t c = 0; c < candidates; ++c) {
    DirectionCandidates candidate{{}, {}, chosen[c]};
    for (int64_t i = 0; i < count; ++i) {
      const auto& unfolding = batch.unfoldings[i][c];
      candidate.x.push_back(folded(unfolding, solved[reuses ? i : c * count + i]));
      candidate.unfoldings.push_back(unfolding);
    }
    result.push_back(std::move(candidate));
  }
  return result;
}

}  // namespace tensorion
