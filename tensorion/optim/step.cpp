#include "tensorion/step.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tensorion/core/precision.h"
#include "tensorion/core/scratch_arena.h"
#include "tensorion/core/strided.h"
#include "tensorion/core/tensor_groups.h"
#include "tensorion/lmo/direction.h"
#include "tensorion/optim/device_step.h"
#include "tensorion/optim/nonfinite.h"
#include "tensorion/optim/parallel_update.h"

namespace tensorion {
namespace {

void check_floating(at::TensorList tensors, const char* name) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK_TYPE(at::isFloatingType(tensors[i].scalar_type()),
                     "[tensorion.step] expected real floating-point ", name, ", got ",
                     tensors[i].scalar_type(), " at index ", i);
  }
}

// Throws unless each of `others` is dense and has the shape and device of the tensor at the same index.
void check_matching(at::TensorList tensors, at::TensorList others, const char* name) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto &tensor = tensors[i], &other = others[i];
    TORCH_CHECK_VALUE(other.layout() == at::kStrided, "[tensorion.step] expected a dense ", name,
                      " at index ", i, ", got ", other.layout());
    TORCH_CHECK_VALUE(other.sizes() == tensor.sizes(), "[tensorion.step] expected a ", name, " of shape ",
                      tensor.sizes(), " at index ", i, ", got ", other.sizes());
    TORCH_CHECK_VALUE(other.device() == tensor.device(), "[tensorion.step] expected a ", name, " on ",
                      tensor.device(), " at index ", i, ", got one on ", other.device());
    TORCH_CHECK_TYPE(at::isFloatingType(other.scalar_type()),
                     "[tensorion.step] expected a real floating-point ", name, " at index ", i, ", got ",
                     other.scalar_type());
  }
}

void check_lists(at::TensorList params, at::TensorList grads, at::TensorList momenta) {
  TORCH_CHECK_VALUE(params.size() == grads.size() && params.size() == momenta.size(),
                    "[tensorion.step] expected as many gradients and momenta as parameters, got ",
                    params.size(), " parameters, ", grads.size(), " gradients and ", momenta.size(),
                    " momenta");
  check_floating(params, "parameters");
  check_matching(params, grads, "gradient");
  check_matching(params, momenta, "momentum");
}

// Throws if a shape does not have the unfolding. Called before anything is changed.
void check_unfoldings(at::TensorList tensors, const UnfoldingStrategy& strategy) {
  for (const auto& tensor : tensors) strategy.choose(tensor.sizes());
}

// Throws unless there is one choice for each tensor, or none at all.
void check_choices(at::TensorList tensors, const StepOptions& options, const UnfoldingChoices& choices) {
  if (choices.tensors.empty()) return;
  TORCH_CHECK_VALUE(options.unfolding.is_online() && choices.tensors.size() == tensors.size(),
                    "[tensorion.step] expected a choice for each tensor and unfolding 'online', got ",
                    choices.tensors.size(), " choices for ", tensors.size(), " tensors and unfolding '",
                    options.unfolding.str(), "'");
  for (size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK_VALUE(choices.tensors[i].dim() == 0 && choices.tensors[i].device() == tensors[i].device(),
                      "[tensorion.step] expected a 0-dim choice on ", tensors[i].device(), " at index ", i,
                      ", got shape ", choices.tensors[i].sizes(), " on ", choices.tensors[i].device());
  }
}

// Returns the options for the slices themselves, which are not sliced further.
StepOptions without_slicing(StepOptions options) {
  options.slicing = {};
  return options;
}

// Returns one choice for each slice.
std::vector<at::Tensor> choices_of_slices(const UnfoldingChoices& choices) {
  std::vector<at::Tensor> result;
  for (const auto& choice : choices.tensors) {
    const auto each = choice.reshape({-1}).unbind();
    result.insert(result.end(), each.begin(), each.end());
  }
  return result;
}

// Returns the options with lr_tensor converted to a number. Returns nullopt if found_inf is set: the step
// must be skipped.
std::optional<StepOptions> options_on_cpu(const StepOptions& options) {
  auto cpu_options = options;
  if (options.found_inf && options.found_inf->item<double>() != 0) return std::nullopt;
  if (options.lr_tensor) cpu_options.lr = options.lr_tensor->item<double>();
  cpu_options.lr_tensor.reset();
  cpu_options.found_inf.reset();
  return cpu_options;
}

// Computes M <- G + beta M. Returns false if M is not finite. If the gradient is finite and the sum
// overflows, it is clamped to the largest finite number of the same sign.
bool accumulate(const at::Tensor& momentum, const at::Tensor& grad, const StepOptions& options) {
  if (axpby_(options.momentum, momentum, options.maximize ? -1 : 1, grad) || is_finite(momentum)) return true;
  if (!is_finite(grad)) return false;
  clamp_overflow_(momentum);
  return is_finite(momentum);
}

// Returns the direction of tensor i. If choices are stored, the stored unfolding is used, or a new choice is
// made and stored.
Direction choose_direction(const at::Tensor& target, const StepOptions& options,
                           const UnfoldingChoices& choices, size_t i) {
  if (choices.tensors.empty()) return lmo_direction(target, options.unfolding, options.polar);
  const auto& choice = choices.tensors[i];
  if (!choices.decide) {
    const auto stored = unfolding_at(target.sizes(), choice.item<int64_t>());
    return lmo_direction(target, stored.modes(), options.polar);
  }
  auto direction = lmo_direction(target, options.unfolding, options.polar);
  choice.fill_(unfolding_index(direction.unfolding));
  return direction;
}

// Algorithm 1 of the paper for one tensor on the CPU.
void update(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& momentum,
            const StepOptions& options, const UnfoldingChoices& choices, size_t i) {
  bool finite = accumulate(momentum, grad, options);
  auto target = momentum;
  if (options.nesterov) {
    target = scratch(momentum.sizes(), momentum.options());
    copy_strided(momentum, target);
    finite = accumulate(target, grad, options) && finite;
  }
  if (!finite) {
    param.fill_(NAN);
    return;
  }
  const auto direction = choose_direction(target, options, choices, i);
  const double scale = adjusted_scale(direction.unfolding, options.adjust_lr_fn);
  axpby_(1 - options.lr * options.weight_decay, param, -options.lr * scale, direction.x);
}

// The indices of tensors on the CPU, and of tensors on other devices, grouped by device and dtype. Empty
// tensors are omitted.
struct DeviceGroups {
  std::vector<size_t> cpu;
  std::vector<std::vector<size_t>> devices;
};

DeviceGroups group_by_device(at::TensorList tensors) {
  DeviceGroups result;
  for (auto& indices : by_device_and_dtype(tensors)) {
    std::erase_if(indices, [&](size_t i) { return tensors[i].numel() == 0; });
    if (indices.empty()) continue;
    if (tensors[indices[0]].is_cpu()) {
      result.cpu.insert(result.cpu.end(), indices.begin(), indices.end());
    } else {
      result.devices.push_back(std::move(indices));
    }
  }
  std::sort(result.cpu.begin(), result.cpu.end());
  return result;
}

}  // namespace

void StepOptions::check() const {
  for (const auto& [name, value] :
       {std::pair{"lr", lr}, std::pair{"momentum", momentum}, std::pair{"weight_decay", weight_decay}}) {
    TORCH_CHECK_VALUE(std::isfinite(value), "[tensorion.step] ", name, " must be finite, got ", value);
  }
  TORCH_CHECK_VALUE(
      adjust_lr_fn == "match_rms_adamw" || adjust_lr_fn == "original" ||
          adjust_lr_fn == "spectral_unclamped" || adjust_lr_fn == "conv_radius",
      "[tensorion.step] adjust_lr_fn must be 'match_rms_adamw', 'original', 'spectral_unclamped' or "
      "'conv_radius', got '",
      adjust_lr_fn, "'");
  slicing.check();
  polar.check();
}

void step(at::TensorList params, at::TensorList grads, at::TensorList momenta, const StepOptions& options,
          const UnfoldingChoices& choices) {
  const NoAutocastGuard no_autocast;
  options.check();
  check_lists(params, grads, momenta);
  if (!options.slicing.is_whole()) {
    const auto& slicing = options.slicing;
    return step(slicing.slices(params), slicing.slices(grads), slicing.slices(momenta),
                without_slicing(options), {choices_of_slices(choices), choices.decide});
  }
  check_unfoldings(params, options.unfolding);
  check_choices(params, options, choices);
  const c10::NoGradGuard no_grad;
  const auto [cpu, devices] = group_by_device(params);
  for (const auto& indices : devices) {
    step_on_device(at_indices(params, indices), at_indices(grads, indices), at_indices(momenta, indices),
                   options, {at_indices(choices.tensors, indices), choices.decide});
  }
  const auto cpu_options = cpu.empty() ? std::nullopt : options_on_cpu(options);
  if (!cpu_options) return;
  for_each_tensor(params, cpu, options.unfolding,
                  [&](size_t i) { update(params[i], grads[i], momenta[i], *cpu_options, choices, i); });
}

void add_gradients(at::TensorList momenta, at::TensorList grads, const StepOptions& options) {
  const NoAutocastGuard no_autocast;
  options.check();
  TORCH_CHECK_VALUE(momenta.size() == grads.size(),
                    "[tensorion.step] expected as many gradients as momenta, got ", grads.size(),
                    " gradients and ", momenta.size(), " momenta");
  check_floating(momenta, "momenta");
  check_matching(momenta, grads, "gradient");
  const c10::NoGradGuard no_grad;
  const auto [cpu, devices] = group_by_device(momenta);
  for (const auto& indices : devices)
    add_gradients_on_device(at_indices(momenta, indices), at_indices(grads, indices), options);
  for (const size_t i : cpu) accumulate(momenta[i], grads[i], options);
}

std::vector<at::Tensor> directions(at::TensorList targets, const StepOptions& options,
                                   const UnfoldingChoices& choices) {
  std::vector<at::Tensor> results;
  for (const auto& target : targets) results.push_back(at::empty(target.sizes(), target.options()));
  directions_out(results, targets, options, choices);
  return results;
}

void directions_out(at::TensorList results, at::TensorList targets, const StepOptions& options,
                    const UnfoldingChoices& choices) {
  const NoAutocastGuard no_autocast;
  options.check();
  TORCH_CHECK_VALUE(results.size() == targets.size(),
                    "[tensorion.step] expected as many results as momenta, got ", results.size(),
                    " results and ", targets.size(), " momenta");
  check_floating(targets, "momenta");
  check_matching(targets, results, "result");
  const c10::NoGradGuard no_grad;
  if (!options.slicing.is_whole()) {
    const auto& slicing = options.slicing;
    return directions_out(slicing.slices(results), slicing.slices(targets), without_slicing(options),
                          {choices_of_slices(choices), choices.decide});
  }
  check_unfoldings(targets, options.unfolding);
  check_choices(targets, options, choices);
  const auto [cpu, devices] = group_by_device(targets);
  for (const auto& indices : devices) {
    const auto directions = directions_on_device(at_indices(targets, indices), options,
                                                 {at_indices(choices.tensors, indices), choices.decide});
    for (size_t i = 0; i < indices.size(); ++i) results[indices[i]].copy_(directions[i]);
  }
  for_each_tensor(targets, cpu, options.unfolding, [&](size_t i) {
    if (!is_finite(targets[i])) {
      results[i].fill_(NAN);
      return;
    }
    const auto direction = choose_direction(targets[i], options, choices, i);
    copy_strided(direction.x, results[i]);
    results[i].mul_(adjusted_scale(direction.unfolding, options.adjust_lr_fn));
  });
}

void apply_directions(at::TensorList params, at::TensorList directions, const StepOptions& options) {
  const NoAutocastGuard no_autocast;
  options.check();
  TORCH_CHECK_VALUE(params.size() == directions.size(),
                    "[tensorion.step] expected as many directions as parameters, got ", directions.size(),
                    " directions and ", params.size(), " parameters");
  check_floating(params, "parameters");
  check_matching(params, directions, "direction");
  const c10::NoGradGuard no_grad;
  const auto [cpu, devices] = group_by_device(params);
  for (const auto& indices : devices)
    apply_directions_on_device(at_indices(params, indices), at_indices(directions, indices), options);
  const auto cpu_options = cpu.empty() ? std::nullopt : options_on_cpu(options);
  if (!cpu_options) return;
  for (const size_t i : cpu)
    axpby_(1 - cpu_options->lr * cpu_options->weight_decay, params[i], -cpu_options->lr, directions[i]);
}

double solving_cost(at::IntArrayRef shape, const UnfoldingStrategy& unfolding) {
  return estimate_cost(shape, unfolding).products;
}

}  // namespace tensorion
