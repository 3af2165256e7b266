#include "tensorion/optim/device_step.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <map>

#include "tensorion/core/tensor_groups.h"
#include "tensorion/optim/nonfinite.h"
#include "tensorion/polar/polar_factor.h"

namespace tensorion {
namespace {

// The options that are tensors, on the device.
struct Scalars {
  at::Tensor go;  // 1 if the step is made, 0 if it is skipped; undefined if it is made in any case
  at::Tensor lr;  // what directions are multiplied with; undefined if the number in the options is
};

Scalars scalars_on(const at::Tensor& like, const StepOptions& options) {
  const auto number = like.options().dtype(compute_type(like));
  Scalars scalars;
  if (options.found_inf) scalars.go = options.found_inf->to(number).eq(0).to(number);
  if (options.lr_tensor) scalars.lr = options.lr_tensor->to(number);
  if (scalars.go.defined())
    scalars.lr = scalars.lr.defined() ? scalars.lr * scalars.go : scalars.go * options.lr;
  return scalars;
}

// The tensor as many times as the list is long, with a mode: a tensor without modes would be rounded to the
// dtype of what it is multiplied with.
std::vector<at::Tensor> repeated(const at::Tensor& scalar, size_t count) {
  return std::vector<at::Tensor>(count, scalar.reshape({1}));
}

void multiply_(at::TensorList tensors, const at::Tensor& factor) {
  if (tensors[0].scalar_type() == factor.scalar_type()) {
    at::_foreach_mul_(tensors, factor);
  } else {
    at::_foreach_mul_(tensors, repeated(factor, tensors.size()));
  }
}

// All entries in the order of memory, as a view if there are no gaps.
at::Tensor in_memory_order(const at::Tensor& x) {
  return x.is_non_overlapping_and_dense() ? x.as_strided({x.numel()}, {1}) : x.reshape({-1});
}

// y <- y + sign x, but y stays as it is if go is 0, even if x is not finite. The sums go through copies of x,
// in pieces that fit into the scratch memory.
void add_if_(at::TensorList y, at::TensorList x, double sign, const at::Tensor& go) {
  const auto skipped = go.eq(0);
  for (size_t first = 0, last = 0; first < x.size(); first = last) {
    std::vector<at::Tensor> flat, pieces;
    std::vector<int64_t> sizes;
    for (int64_t elements = 0;
         last < x.size() && (last == first || elements + x[last].numel() <= kMinDeviceScratch); ++last) {
      elements += x[last].numel();
      sizes.push_back(x[last].numel());
      flat.push_back(in_memory_order(x[last]));
    }
    const auto copies = at::cat(flat).masked_fill_(skipped, 0).split_with_sizes(sizes);
    for (size_t i = first; i < last; ++i) {
      const auto& copy = copies[i - first];
      pieces.push_back(x[i].is_non_overlapping_and_dense() ? copy.as_strided(x[i].sizes(), x[i].strides())
                                                           : copy.view(x[i].sizes()));
    }
    at::_foreach_add_(y.slice(first, last - first), pieces, sign);
  }
}

// M <- G + beta M. A sum of finite numbers that overflows is clamped to the largest number, and keeps its
// sign.
void accumulate_(at::TensorList momenta, at::TensorList grads, const StepOptions& options,
                 const at::Tensor& go) {
  const double sign = options.maximize ? -1 : 1;
  if (go.defined()) {
    multiply_(momenta, (1 - go).add_(go, options.momentum));  // exactly beta, or 1
    add_if_(momenta, grads, sign, go);
  } else {
    at::_foreach_mul_(momenta, options.momentum);
    at::_foreach_add_(momenta, grads, sign);
  }
  const double limit = largest_finite(momenta[0].scalar_type());
  at::_foreach_clamp_max_(momenta, limit);
  at::_foreach_clamp_min_(momenta, -limit);
}

// max |x| of each tensor.
at::Tensor largest_entries(at::TensorList tensors) {
  return at::stack(at::_foreach_norm(tensors, INFINITY, compute_type(tensors[0])));
}

at::Tensor not_zero(const at::Tensor& largest) {
  return largest.clamp_min(std::numeric_limits<float>::min());
}

// A bound of the entries of what is orthogonalized, for each tensor. NaN for those whose gradients are not
// finite, unless the step is skipped then: clamping hides these in the momenta.
at::Tensor largest_of_targets(at::TensorList momenta, at::TensorList grads, const StepOptions& options,
                              const at::Tensor& go) {
  auto largest = largest_entries(momenta);
  if (go.defined() && !options.nesterov) return not_zero(largest);
  auto of_grads = largest_entries(grads);
  if (go.defined()) of_grads = of_grads.masked_fill(go.eq(0), 0);
  if (options.nesterov) largest = at::add(of_grads, largest, options.momentum);
  if (!go.defined()) largest = at::add(largest, of_grads - of_grads);
  return not_zero(largest);
}

// Calls visit(indices, factor) for the tensors whose directions have the same scale.
template <typename Visit>
void for_each_scale(const std::vector<Unfolding>& unfoldings, const std::string& adjust_lr_fn, Visit visit) {
  std::map<double, std::vector<size_t>> by_scale;
  for (size_t i = 0; i < unfoldings.size(); ++i)
    by_scale[adjusted_scale(unfoldings[i], adjust_lr_fn)].push_back(i);
  for (const auto& [scale, indices] : by_scale) visit(indices, scale);
}

// The factors of these tensors' candidates: `factor` (undefined: 1) times the scale if they are chosen, else
// 0.
std::vector<at::Tensor> factors(const DirectionCandidates& candidates, const std::vector<size_t>& indices,
                                double scale, const at::Tensor& factor) {
  if (!candidates.chosen.defined()) return repeated(factor * scale, indices.size());
  const auto chosen = factor.defined() ? candidates.chosen * (factor * scale) : candidates.chosen * scale;
  std::vector<at::Tensor> found;
  for (const size_t i : indices) found.push_back(chosen.narrow(0, static_cast<int64_t>(i), 1));
  return found;
}

// W <- W - lr scale X, for the candidate that was chosen.
void descend_(at::TensorList params, const std::vector<DirectionCandidates>& candidates,
              const StepOptions& options, const at::Tensor& lr) {
  for (const auto& candidate : candidates) {
    for_each_scale(candidate.unfoldings, options.adjust_lr_fn, [&](const auto& indices, double scale) {
      const auto own = at_indices(params, indices), x = at_indices(candidate.x, indices);
      if (!lr.defined() && !candidate.chosen.defined()) {
        at::_foreach_add_(own, x, -options.lr * scale);
      } else {
        at::_foreach_addcmul_(
            own, x, factors(candidate, indices, lr.defined() ? -scale : -options.lr * scale, lr), 1);
      }
    });
  }
}

void decay_(at::TensorList params, const StepOptions& options, const at::Tensor& lr) {
  if (options.weight_decay == 0) return;
  if (lr.defined()) {
    multiply_(params, 1 - lr * options.weight_decay);
  } else {
    at::_foreach_mul_(params, 1 - options.lr * options.weight_decay);
  }
}

at::TensorList part(at::TensorList tensors, const DirectionBatch& batch) {
  return tensors.empty() ? tensors : tensors.slice(batch.first, batch.count);
}

bool solves_on_device(const at::Tensor& like, const StepOptions& options) {
  return resolve_polar_method(options.polar.method, like) == "newton_schulz";
}

// The directions times their scales, found on the CPU; NaN if `largest` is.
std::vector<at::Tensor> directions_by_cpu(at::TensorList targets, const at::Tensor& largest,
                                          const StepOptions& options, const UnfoldingChoices& choices) {
  const auto numbers = largest.cpu();
  std::vector<at::Tensor> copies, copied_choices;
  for (size_t i = 0; i < targets.size(); ++i) {
    copies.push_back(targets[i].cpu());
    if (!std::isfinite(numbers[static_cast<int64_t>(i)].item<double>())) copies.back().fill_(NAN);
  }
  for (const auto& choice : choices.tensors) copied_choices.push_back(choice.cpu());
  auto found = directions(copies, options, {copied_choices, choices.decide});
  for (auto& x : found) x = x.to(largest.device());
  if (choices.decide && !choices.tensors.empty()) at::_foreach_copy_(choices.tensors, copied_choices);
  return found;
}

// D <- scale X, of the candidate that was chosen.
void set_(at::TensorList directions, const std::vector<DirectionCandidates>& candidates,
          const StepOptions& options) {
  for (size_t c = 0; c < candidates.size(); ++c) {
    const auto& candidate = candidates[c];
    for_each_scale(candidate.unfoldings, options.adjust_lr_fn, [&](const auto& indices, double scale) {
      const auto own = at_indices(directions, indices), x = at_indices(candidate.x, indices);
      if (c > 0) {
        at::_foreach_addcmul_(own, x, factors(candidate, indices, scale, {}), 1);
        return;
      }
      at::_foreach_copy_(own, x);
      if (candidate.chosen.defined()) {
        at::_foreach_mul_(own, factors(candidate, indices, scale, {}));
      } else {
        at::_foreach_mul_(own, scale);
      }
    });
  }
}

}  // namespace

void step_on_device(at::TensorList all_params, at::TensorList all_grads, at::TensorList all_momenta,
                    const StepOptions& options, const UnfoldingChoices& all_choices) {
  const auto plan = plan_directions(all_params, options.unfolding);
  const auto params = at_indices(all_params, plan.order), grads = at_indices(all_grads, plan.order),
             momenta = at_indices(all_momenta, plan.order),
             choices = at_indices(all_choices.tensors, plan.order);
  const auto [go, lr] = scalars_on(params[0], options);
  accumulate_(momenta, grads, options, go);
  const auto largest = largest_of_targets(momenta, grads, options, go);
  if (!solves_on_device(params[0], options)) {
    auto targets = momenta;
    if (options.nesterov) {
      for (auto& target : targets) target = target.clone();
      accumulate_(targets, grads, options, go);
    }
    const auto found = directions_by_cpu(targets, largest, options, {choices, all_choices.decide});
    apply_directions_on_device(params, found, options);
    return;
  }
  decay_(params, options, lr);
  DirectionSolver solver(plan, options.polar, largest);
  for (const auto& batch : plan.batches) {
    const auto load = [&](at::TensorList views) {
      at::_foreach_copy_(views, part(momenta, batch));
      if (options.nesterov) accumulate_(views, part(grads, batch), options, go);
    };
    descend_(part(params, batch), solver.solve(batch, load, {part(choices, batch), all_choices.decide}),
             options, lr);
  }
}

void add_gradients_on_device(at::TensorList momenta, at::TensorList grads, const StepOptions& options) {
  accumulate_(momenta, grads, options, scalars_on(momenta[0], options).go);
}

std::vector<at::Tensor> directions_on_device(at::TensorList targets, const StepOptions& options,
                                             const UnfoldingChoices& all_choices) {
  if (!solves_on_device(targets[0], options)) {
    return directions_by_cpu(targets, largest_entries(targets), options, all_choices);
  }
  std::vector<at::Tensor> found;
  for (const auto& target : targets) found.push_back(at::empty(target.sizes(), target.options()));
  const auto plan = plan_directions(targets, options.unfolding);
  const auto ordered = at_indices(targets, plan.order), directions = at_indices(found, plan.order),
             choices = at_indices(all_choices.tensors, plan.order);
  DirectionSolver solver(plan, options.polar, not_zero(largest_entries(ordered)));
  for (const auto& batch : plan.batches) {
    const auto load = [&](at::TensorList views) { at::_foreach_copy_(views, part(ordered, batch)); };
    set_(part(directions, batch), solver.solve(batch, load, {part(choices, batch), all_choices.decide}),
         options);
  }
  return found;
}

void apply_directions_on_device(at::TensorList params, at::TensorList directions,
                                const StepOptions& options) {
  const auto lr = scalars_on(params[0], options).lr;
  decay_(params, options, lr);
  if (lr.defined()) {
    at::_foreach_addcmul_(params, directions, repeated(-lr, params.size()), 1);
  } else {
    at::_foreach_add_(params, directions, -options.lr);
  }
}

}  // namespace tensorion
