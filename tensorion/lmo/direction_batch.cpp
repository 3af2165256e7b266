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

struct Sides {
  int64_t m, n;
  bool operator==(const Sides&) const = default;
};

Sides sides(const Unfolding& unfolding) {
  return {std::min(unfolding.rows(), unfolding.cols()), std::max(unfolding.rows(), unfolding.cols())};
}

// The unfoldings to solve on: that of the strategy, or all of the balanced shape.
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

// Elements in fp32 that the batch takes for each tensor: what is copied and three more in half precision of
// each matrix, and five Gram matrices in half precision.
int64_t scratch_elements(const Sides& sides, size_t candidates) {
  return static_cast<int64_t>(candidates) * (5 * sides.m * sides.n + 5 * sides.m * sides.m) / 2;
}

// The tensor whose unfolding is the matrix, or its transpose, as a view.
at::Tensor folded(const Unfolding& unfolding, const at::Tensor& matrix) {
  return unfolding.fold(unfolding.rows() > unfolding.cols() ? matrix.mT() : matrix);
}

int64_t matrix_count(const DirectionBatch& batch) {
  return static_cast<int64_t>(batch.count * batch.unfoldings[0].size());
}

// A value for each matrix of a batch, as it is multiplied with them.
at::Tensor per_matrix(const at::Tensor& values) { return values.view({-1, 1, 1}); }

// For each candidate 1 if it is the choice that was made before, else 0. A choice that is no candidate, as
// one made on the CPU may be, counts as the first.
std::vector<at::Tensor> read_choices(const DirectionBatch& batch, at::TensorList choices) {
  const auto numbers = at::stack(choices);
  std::vector<at::Tensor> chosen(batch.unfoldings[0].size());
  for (size_t c = 1; c < chosen.size(); ++c) {
    chosen[c] = numbers.eq(unfolding_number(batch.unfoldings[0][c])).to(at::kFloat);
    chosen[0] = c == 1 ? 1 - chosen[c] : chosen[0] - chosen[c];
  }
  return chosen;
}

void write_choices(const DirectionBatch& batch, const std::vector<at::Tensor>& chosen,
                   at::TensorList choices) {
  at::Tensor numbers;
  for (size_t c = 0; c < chosen.size(); ++c) {
    const auto own = chosen[c] * unfolding_number(batch.unfoldings[0][c]);
    numbers = c == 0 ? own : numbers + own;
  }
  at::_foreach_copy_(choices, numbers.unbind());
}

}  // namespace

DirectionPlan plan_directions(at::TensorList tensors, const UnfoldingStrategy& strategy) {
  // By what a batch has in common. Tensors with a choice are batched by their own shape, so that the choices
  // are the same for all of them.
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
    const auto each = std::max<int64_t>(1, scratch_elements({m, n}, group.unfoldings[0].size()));
    const auto most = static_cast<size_t>(std::max<int64_t>(1, budget / each));
    for (size_t first = 0; first < group.members.size(); first += most) {
      const auto count = std::min(most, group.members.size() - first);
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
  const bool decides = candidates > 1 && choices.decide;
  const bool keeps = candidates > 1 && !choices.decide;
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
  if (keeps) {
    chosen = read_choices(batch, choices.tensors);
    auto kept = scaled[0];
    // Weights of 0 and 1 select.
    for (int64_t c = 1; c < candidates; ++c)
      kept = at::lerp(kept, scaled[c], per_matrix(chosen[c].to(scaled.scalar_type())));
    scaled = kept;
  }
  const auto [solved, attained] =
      newton_schulz_batch(scaled.view({-1, batch.m, batch.n}), schedule_, decides);
  if (decides) {
    const auto best = attained.view({candidates, count}).argmax(0);
    for (int64_t c = 0; c < candidates; ++c) chosen[c] = best.eq(c).to(at::kFloat);
    if (!choices.tensors.empty()) write_choices(batch, chosen, choices.tensors);
  }
  std::vector<DirectionCandidates> found;
  for (int64_t c = 0; c < candidates; ++c) {
    DirectionCandidates candidate{{}, {}, chosen[c]};
    for (int64_t i = 0; i < count; ++i) {
      const auto& unfolding = batch.unfoldings[i][c];
      candidate.x.push_back(folded(unfolding, solved[keeps ? i : c * count + i]));
      candidate.unfoldings.push_back(unfolding);
    }
    found.push_back(std::move(candidate));
  }
  return found;
}

}  // namespace tensorion
