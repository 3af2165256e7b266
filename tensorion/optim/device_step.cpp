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

// Scalars of the step that are tensors on the device.
struct DeviceScalars {
  // 1 if the step is performed, 0 if it is skipped. Undefined if there is no found_inf.
  at::Tensor enabled;
  // The learning rate, 0 if the step is skipped. Undefined if it is the number in the options.
  at::Tensor lr;
};

DeviceScalars scalars_on_device(const at::Tensor& like, const StepOptions& options) {
  const auto scalar = like.options().dtype(compute_type(like));
  DeviceScalars scalars;
  if (options.found_inf) scalars.enabled = options.found_inf->to(scalar).eq(0).to(scalar);
  if (options.lr_tensor) scalars.lr = options.lr_tensor->to(scalar);
  if (scalars.enabled.defined())
    scalars.lr = scalars.lr.defined() ? scalars.lr * scalars.enabled : scalars.enabled * options.lr;
  return scalars;
}

// Returns a list of `count` copies of the scalar as a tensor of shape (1). A 0-dim tensor would be rounded to
// the dtype of the tensor that it is multiplied with.
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

// Returns the elements as a vector: a view in memory order if x is dense, a copy otherwise.
at::Tensor flattened(const at::Tensor& x) {
  return x.is_non_overlapping_and_dense() ? x.as_strided({x.numel()}, {1}) : x.reshape({-1});
}

// y <- y + sign x if `enabled` is 1. If it is 0, y does not change even if x is not finite. Works on masked
// copies of x, in chunks that limit the memory.
void add_if_enabled_(at::TensorList y, at::TensorList x, double sign, const at::Tensor& enabled) {
  const auto skipped = enabled.eq(0);
  for (size_t first = 0, last = 0; first < x.size(); first = last) {
    std::vector<at::Tensor> flat, pieces;
    std::vector<int64_t> sizes;
    for (int64_t elements = 0;
         last < x.size() && (last == first || elements + x[last].numel() <= kMinDeviceScratch); ++last) {
      elements += x[last].numel();
      sizes.push_back(x[last].numel());
      flat.push_back(flattened(x[last]));
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

// M <- G + beta M. Sums that overflow are clamped to the largest finite number and keep their sign.
void accumulate_(at::TensorList momenta, at::TensorList grads, const StepOptions& options,
                 const at::Tensor& enabled) {
  const double sign = options.maximize ? -1 : 1;
  if (enabled.defined()) {
    multiply_(momenta, (1 - enabled).add_(enabled, options.momentum));  // exactly beta or exactly 1
    add_if_enabled_(momenta, grads, sign, enabled);
  } else {
    at::_foreach_mul_(momenta, options.momentum);
    at::_foreach_add_(momenta, grads, sign);
  }
  clamp_overflow_(momenta);
}

// Returns max |x| of each tensor.
at::Tensor max_abs(at::TensorList tensors) {
  return at::stack(at::_foreach_norm(tensors, INFINITY, compute_type(tensors[0])));
}

// Replaces zeros, so that the result can be a divisor.
at::Tensor clamp_to_normal(const at::Tensor& largest) {
  return largest.clamp_min(std::numeric_limits<float>::min());
}

// For each tensor, returns an upper bound of max |x| of the tensor to orthogonalize: the momentum, or the
// Nesterov look-ahead. Without found_inf, the bound is NaN if the gradient is not finite. The momentum does
// not show this, because it is clamped.
at::Tensor max_abs_of_targets(at::TensorList momenta, at::TensorList grads, const StepOptions& options,
                              const at::Tensor& enabled) {
  auto bounds = max_abs(momenta);
  if (enabled.defined() && !options.nesterov) return clamp_to_normal(bounds);
  auto of_grads = max_abs(grads);
  if (enabled.defined()) of_grads = of_grads.masked_fill(enabled.eq(0), 0);
  if (options.nesterov) bounds = at::add(of_grads, bounds, options.momentum);
  if (!enabled.defined()) bounds = at::add(bounds, of_grads - of_grads);
  return clamp_to_normal(bounds);
}

// Groups the tensors by the scale of their update and calls visit(indices, scale) for each group.
template <typename Visit>
void for_each_scale(const std::vector<Unfolding>& unfoldings, const std::string& adjust_lr_fn, Visit visit) {
  std::map<double, std::vector<size_t>> by_scale;
  for (size_t i = 0; i < unfoldings.size(); ++i)
    by_scale[adjusted_scale(unfoldings[i], adjust_lr_fn)].push_back(i);
  for (const auto& [scale, indices] : by_scale) visit(indices, scale);
}

// Returns the factors of a candidate for the tensors at these indices: scale * factor if the candidate is
// chosen for the tensor, 0 otherwise. An undefined `factor` stands for 1.
std::vector<at::Tensor> candidate_factors(const DirectionCandidates& candidates,
                                          const std::vector<size_t>& indices, double scale,
                                          const at::Tensor& factor) {
  if (!candidates.chosen.defined()) return repeated(factor * scale, indices.size());
  const auto chosen = factor.defined() ? candidates.chosen * (factor * scale) : candidates.chosen * scale;
  std::vector<at::Tensor> found;
  for (const size_t i : indices) found.push_back(chosen.narrow(0, static_cast<int64_t>(i), 1));
  return found;
}

// W <- W - lr scale X, in which X is the candidate that was chosen for the tensor.
void subtract_candidates_(at::TensorList params, const std::vector<DirectionCandidates>& candidates,
                          const StepOptions& options, const at::Tensor& lr) {
  for (const auto& candidate : candidates) {
    for_each_scale(candidate.unfoldings, options.adjust_lr_fn, [&](const auto& indices, double scale) {
      const auto own = at_indices(params, indices), x = at_indices(candidate.x, indices);
      if (!lr.defined() && !candidate.chosen.defined()) {
        at::_foreach_add_(own, x, -options.lr * scale);
      } else {
        at::_foreach_addcmul_(
            own, x, candidate_factors(candidate, indices, lr.defined() ? -scale : -options.lr * scale, lr),
            1);
      }
    });
  }
}

// W <- (1 - lr weight_decay) W.
void apply_weight_decay_(at::TensorList params, const StepOptions& options, const at::Tensor& lr) {
  if (options.weight_decay == 0) return;
  if (lr.defined()) {
    multiply_(params, 1 - lr * options.weight_decay);
  } else {
    at::_foreach_mul_(params, 1 - options.lr * options.weight_decay);
  }
}

// Returns the tensors of the batch; an empty list stays empty.
at::TensorList batch_of(at::TensorList tensors, const DirectionBatch& batch) {
  return tensors.empty() ? tensors : tensors.slice(batch.first, batch.count);
}

bool solves_on_device(const at::Tensor& like, const StepOptions& options) {
  return resolve_polar_method(options.polar.method, like) == "newton_schulz";
}

// Computes the directions, times their scales, on the CPU. They are NaN if the element of `bounds` is not
// finite.
std::vector<at::Tensor> directions_on_cpu(at::TensorList targets, const at::Tensor& bounds,
                                          const StepOptions& options, const UnfoldingChoices& choices) {
  const auto numbers = bounds.cpu();
  std::vector<at::Tensor> copies, copied_choices;
  for (size_t i = 0; i < targets.size(); ++i) {
    copies.push_back(targets[i].cpu());
    if (!std::isfinite(numbers[static_cast<int64_t>(i)].item<double>())) copies.back().fill_(NAN);
  }
  for (const auto& choice : choices.tensors) copied_choices.push_back(choice.cpu());
  auto found = directions(copies, options, {copied_choices, choices.decide});
  for (auto& x : found) x = x.to(bounds.device());
  if (choices.decide && !choices.tensors.empty()) at::_foreach_copy_(choices.tensors, copied_choices);
  return found;
}

// D <- scale X, in which X is the candidate that was chosen for the tensor.
void assign_candidates_(at::TensorList directions, const std::vector<DirectionCandidates>& candidates,
                        const StepOptions& options) {
  for (size_t c = 0; c < candidates.size(); ++c) {
    const auto& candidate = candidates[c];
    for_each_scale(candidate.unfoldings, options.adjust_lr_fn, [&](const auto& indices, double scale) {
      const auto own = at_indices(directions, indices), x = at_indices(candidate.x, indices);
      if (c > 0) {
        at::_foreach_addcmul_(own, x, candidate_factors(candidate, indices, scale, {}), 1);
        return;
      }
      at::_foreach_copy_(own, x);
      if (candidate.chosen.defined()) {
        at::_foreach_mul_(own, candidate_factors(candidate, indices, scale, {}));
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
  const auto [enabled, lr] = scalars_on_device(params[0], options);
  accumulate_(momenta, grads, options, enabled);
  const auto bounds = max_abs_of_targets(momenta, grads, options, enabled);
  if (!solves_on_device(params[0], options)) {
    auto targets = momenta;
    if (options.nesterov) {
      for (auto& target : targets) target = target.clone();
      accumulate_(targets, grads, options, enabled);
    }
    const auto found = directions_on_cpu(targets, bounds, options, {choices, all_choices.decide});
    apply_directions_on_device(params, found, options);
    return;
  }
  apply_weight_decay_(params, options, lr);
  DirectionSolver solver(plan, options.polar, bounds);
  for (const auto& batch : plan.batches) {
    const auto load = [&](at::TensorList views) {
      at::_foreach_copy_(views, batch_of(momenta, batch));
      if (options.nesterov) accumulate_(views, batch_of(grads, batch), options, enabled);
    };
    subtract_candidates_(batch_of(params, batch),
                         solver.solve(batch, load, {batch_of(choices, batch), all_choices.decide}), options,
                         lr);
  }
}

void add_gradients_on_device(at::TensorList momenta, at::TensorList grads, const StepOptions& options) {
  accumulate_(momenta, grads, options, scalars_on_device(momenta[0], options).enabled);
}

std::vector<at::Tensor> directions_on_device(at::TensorList targets, const StepOptions& options,
                                             const UnfoldingChoices& all_choices) {
  if (!solves_on_device(targets[0], options)) {
    return directions_on_cpu(targets, max_abs(targets), options, all_choices);
  }
  std::vector<at::Tensor> found;
  for (const auto& target : targets) found.push_back(at::empty(target.sizes(), target.options()));
  const auto plan = plan_directions(targets, options.unfolding);
  const auto ordered = at_indices(targets, plan.order), directions = at_indices(found, plan.order),
             choices = at_indices(all_choices.tensors, plan.order);
  DirectionSolver solver(plan, options.polar, clamp_to_normal(max_abs(ordered)));
  for (const auto& batch : plan.batches) {
    const auto load = [&](at::TensorList views) { at::_foreach_copy_(views, batch_of(ordered, batch)); };
    assign_candidates_(batch_of(directions, batch),
                       solver.solve(batch, load, {batch_of(choices, batch), all_choices.decide}), options);
  }
  return found;
}

void apply_directions_on_device(at::TensorList params, at::TensorList directions,
                                const StepOptions& options) {
  const auto lr = scalars_on_device(params[0], options).lr;
  apply_weight_decay_(params, options, lr);
  if (lr.defined()) {
    at::_foreach_addcmul_(params, directions, repeated(-lr, params.size()), 1);
  } else {
    at::_foreach_add_(params, directions, -options.lr);
  }
}

}  // namespace tensorion
