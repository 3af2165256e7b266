#include "tensorion/step.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "tensorion/core/precision.h"
#include "tensorion/core/scratch_arena.h"
#include "tensorion/core/strided.h"
#include "tensorion/lmo/direction.h"
#include "tensorion/optim/tensor_schedule.h"

namespace tensorion {
namespace {

void check_floating(at::TensorList tensors, const char* name) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK_TYPE(at::isFloatingType(tensors[i].scalar_type()),
                     "[tensorion.step] expected real floating-point ", name, ", got ",
                     tensors[i].scalar_type(), " at index ", i);
  }
}

// Whether each of `others` fits the tensor at its index.
void check_alike(at::TensorList tensors, at::TensorList others, const char* name) {
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
  check_alike(params, grads, "gradient");
  check_alike(params, momenta, "momentum");
}

// Every shape must have the unfolding before anything changes.
void check_unfoldings(at::TensorList tensors, const UnfoldingStrategy& strategy) {
  for (const auto& tensor : tensors) strategy.choose(tensor.sizes());
}

// The same options for slices, which are tensors of their own.
StepOptions whole(StepOptions options) {
  options.slicing = {};
  return options;
}

// The largest finite value of the dtype.
double largest_finite(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return std::numeric_limits<double>::max();
    case at::kHalf: return 65504.0;
    case at::kBFloat16: return 3.3895313892515355e38;
    default: return std::numeric_limits<float>::max();
  }
}

// Sums propagate what is not finite, and are fast; those of large numbers may overflow, so that a sum which
// is not finite says nothing yet.
bool is_finite(const at::Tensor& x) {
  return std::isfinite(x.sum(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).item<double>()) ||
         x.isfinite().all().item<bool>();
}

// The options for a tensor on this device. On the CPU tensors in them become numbers, which costs no
// synchronization there; elsewhere they stay on the device, which alone knows their values. Nothing if the
// step is to be skipped.
std::optional<StepOptions> options_on(const c10::Device& device, const StepOptions& options) {
  auto local = options;
  if (device.is_cpu()) {
    if (options.found_inf && options.found_inf->item<double>() != 0) return std::nullopt;
    if (options.lr_tensor) local.lr = options.lr_tensor->item<double>();
    local.lr_tensor.reset();
    local.found_inf.reset();
    return local;
  }
  for (auto* scalar : {&local.lr_tensor, &local.found_inf}) {
    if (*scalar) *scalar = (*scalar)->to(device, at::kFloat);
  }
  return local;
}

// 1 if the device is to make the step, else 0.
at::Tensor is_made(const at::Tensor& found_inf) { return (found_inf == 0).to(at::kFloat); }

// M <- G + beta M. Returns false if M is known not to be finite, which only the CPU can tell without a
// synchronization. A sum of finite gradients may overflow: it is clamped to the largest number, and keeps its
// sign.
bool accumulate(const at::Tensor& momentum, const at::Tensor& grad, const StepOptions& options) {
  const double sign = options.maximize ? -1 : 1;
  const double limit = largest_finite(momentum.scalar_type());
  if (options.found_inf) {
    const auto go = is_made(*options.found_inf);
    momentum.mul_((1 - (1 - options.momentum) * go).to(momentum.scalar_type()))
        .add_(at::where(go > 0, grad, at::zeros_like(grad)), sign)
        .clamp_(-limit, limit);
    return true;
  }
  if (axpby_(options.momentum, momentum, sign, grad) || !momentum.is_cpu() || is_finite(momentum))
    return true;
  if (!is_finite(grad)) return false;
  momentum.clamp_(-limit, limit);
  return is_finite(momentum);
}

// W <- (1 - eta gamma) W - eta scale X.
void descend(const at::Tensor& param, const at::Tensor& x, double scale, const StepOptions& options) {
  if (!options.lr_tensor && !options.found_inf) {
    axpby_(1 - options.lr * options.weight_decay, param, -options.lr * scale, x);
    return;
  }
  auto lr = options.lr_tensor ? *options.lr_tensor : at::full({}, options.lr, options.found_inf->options());
  if (options.found_inf) lr = lr * is_made(*options.found_inf);
  if (options.weight_decay != 0) param.mul_((1 - lr * options.weight_decay).to(param.scalar_type()));
  param.sub_(x * (lr * scale).to(x.scalar_type()));
}

// Algorithm 1 of the paper for one tensor.
void update(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& momentum,
            const StepOptions& all_options) {
  const auto options = options_on(param.device(), all_options);
  if (!options) return;
  bool finite = accumulate(momentum, grad, *options);
  auto target = momentum;
  if (options->nesterov) {
    target = scratch(momentum.sizes(), momentum.options());
    copy_strided(momentum, target);
    finite = accumulate(target, grad, *options) && finite;
  }
  if (!finite) {
    param.fill_(NAN);
    return;
  }
  const auto direction = lmo_direction(target, options->unfolding, options->polar);
  descend(param, direction.x, adjusted_scale(direction.unfolding, options->adjust_lr_fn), *options);
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

double adjusted_scale(const Unfolding& unfolding, const std::string& adjust_lr_fn) {
  const auto m = static_cast<double>(unfolding.rows());
  const auto n = static_cast<double>(unfolding.cols());
  if (adjust_lr_fn == "match_rms_adamw") return 0.2 * std::sqrt(std::max(m, n));
  if (adjust_lr_fn == "original") return std::sqrt(std::max(1.0, m / std::max(1.0, n)));
  if (adjust_lr_fn == "spectral_unclamped") return std::sqrt(m / std::max(1.0, n));
  double taps = 1;
  for (size_t mode = 2; mode < unfolding.shape().size(); ++mode)
    taps *= static_cast<double>(unfolding.shape()[mode]);
  return 1 / std::sqrt(std::max(1.0, taps));
}

void step(at::TensorList params, at::TensorList grads, at::TensorList momenta, const StepOptions& options) {
  const NoAutocastGuard no_autocast;
  options.check();
  check_lists(params, grads, momenta);
  if (!options.slicing.is_whole()) {
    const auto& slicing = options.slicing;
    return step(slicing.slices(params), slicing.slices(grads), slicing.slices(momenta), whole(options));
  }
  check_unfoldings(params, options.unfolding);
  const c10::NoGradGuard no_grad;
  for_each_tensor(params, options.unfolding,
                  [&](size_t i) { update(params[i], grads[i], momenta[i], options); });
}

void add_gradients(at::TensorList momenta, at::TensorList grads, const StepOptions& options) {
  const NoAutocastGuard no_autocast;
  options.check();
  TORCH_CHECK_VALUE(momenta.size() == grads.size(),
                    "[tensorion.step] expected as many gradients as momenta, got ", grads.size(),
                    " gradients and ", momenta.size(), " momenta");
  check_floating(momenta, "momenta");
  check_alike(momenta, grads, "gradient");
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < momenta.size(); ++i) accumulate(momenta[i], grads[i], options);
}

std::vector<at::Tensor> directions(at::TensorList targets, const StepOptions& options) {
  const NoAutocastGuard no_autocast;
  options.check();
  check_floating(targets, "momenta");
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> found;
  for (const auto& target : targets) found.push_back(at::empty(target.sizes(), target.options()));
  if (!options.slicing.is_whole()) {
    const auto parts = directions(options.slicing.slices(targets), whole(options));
    const auto views = options.slicing.slices(found);
    for (size_t i = 0; i < parts.size(); ++i) views[i].copy_(parts[i]);
    return found;
  }
  check_unfoldings(targets, options.unfolding);
  for_each_tensor(targets, options.unfolding, [&](size_t i) {
    // As in `step`, values are looked at on the CPU only.
    if (targets[i].is_cpu() && !is_finite(targets[i])) {
      found[i].fill_(NAN);
      return;
    }
    const auto direction = lmo_direction(targets[i], options.unfolding, options.polar);
    copy_strided(direction.x, found[i]);
    found[i].mul_(adjusted_scale(direction.unfolding, options.adjust_lr_fn));
  });
  return found;
}

void apply_directions(at::TensorList params, at::TensorList directions, const StepOptions& options) {
  const NoAutocastGuard no_autocast;
  options.check();
  TORCH_CHECK_VALUE(params.size() == directions.size(),
                    "[tensorion.step] expected as many directions as parameters, got ", directions.size(),
                    " directions and ", params.size(), " parameters");
  check_floating(params, "parameters");
  check_alike(params, directions, "direction");
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < params.size(); ++i) {
    if (const auto local = options_on(params[i].device(), options))
      descend(params[i], directions[i], 1, *local);
  }
}

double solving_cost(at::IntArrayRef shape, const UnfoldingStrategy& unfolding) {
  return estimate_cost(shape, unfolding).products;
}

int64_t first_nonfinite(at::TensorList tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!is_finite(tensors[i])) return static_cast<int64_t>(i);
  }
  return -1;
}

at::Tensor any_nonfinite(at::TensorList tensors) {
  TORCH_CHECK_VALUE(!tensors.empty(), "[tensorion.step] expected at least one tensor, got none");
  const auto number = at::TensorOptions().dtype(at::kFloat).device(tensors[0].device());
  if (tensors[0].is_cpu()) return at::full({}, first_nonfinite(tensors) < 0 ? 0.0 : 1.0, number);
  std::vector<at::Tensor> magnitudes{at::zeros({}, number)};
  for (const auto& tensor : tensors) {
    if (tensor.numel() > 0) magnitudes.push_back(at::linalg_vector_norm(tensor, INFINITY).to(number));
  }
  return at::stack(magnitudes).isfinite().logical_not().any().to(at::kFloat);
}

}  // namespace tensorion
