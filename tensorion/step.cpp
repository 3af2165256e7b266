#include "tensorion/step.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>

#include "tensorion/elementwise.h"
#include "tensorion/parallel.h"
#include "tensorion/precision.h"
#include "tensorion/scratch.h"

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
  if (strategy.is_online()) return;
  for (const auto& tensor : tensors) strategy.choose(tensor.sizes());
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

// m <- beta m + sign g; returns whether it is finite now. A sum of finite gradients may overflow: as the
// largest number it keeps its direction. Values are looked at on the CPU only, where that costs no
// synchronization.
bool add_gradient(double beta, const at::Tensor& m, double sign, const at::Tensor& grad) {
  if (scale_add(beta, m, sign, grad) || !m.is_cpu() || is_finite(m)) return true;
  if (!is_finite(grad)) return false;
  const double limit = largest_finite(m.scalar_type());
  m.clamp_(-limit, limit);
  return is_finite(m);
}

// W <- (1 - eta gamma) W - eta scale X.
void descend(const at::Tensor& param, const at::Tensor& x, double scale, const StepOptions& options) {
  scale_add(1 - options.lr * options.weight_decay, param, -options.lr * scale, x);
}

// The same with a learning rate that only the device knows.
void descend_on_device(const at::Tensor& param, const at::Tensor& x, double scale, const at::Tensor& lr,
                       const StepOptions& options) {
  if (options.weight_decay != 0) param.mul_((1 - lr * options.weight_decay).to(param.scalar_type()));
  param.sub_(x * (lr * scale).to(x.scalar_type()));
}

// M <- G + beta M and W <- (1 - eta gamma) W - eta scale X, with numbers.
void update(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& momentum,
            const StepOptions& options) {
  const double sign = options.maximize ? -1 : 1;
  bool finite = add_gradient(options.momentum, momentum, sign, grad);
  auto target = momentum;
  if (options.nesterov) {
    target = scratch(momentum.sizes(), momentum.options());
    copy_entries(momentum, target);
    finite = add_gradient(options.momentum, target, sign, grad) && finite;
  }
  if (!finite) {
    param.fill_(NAN);
    return;
  }
  const auto direction = lmo_direction(target, options.unfolding, options.polar);
  descend(param, direction.x, adjusted_scale(direction.unfolding, options.adjust_lr_fn), options);
}

// The same with a learning rate and a verdict that only the device knows.
void update_on_device(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& momentum,
                      const StepOptions& options) {
  const double sign = options.maximize ? -1 : 1;
  const auto number = at::TensorOptions().dtype(at::kFloat).device(param.device());
  const auto go = options.found_inf ? (*options.found_inf == 0).to(number) : at::ones({}, number);
  const auto lr = (options.lr_tensor ? options.lr_tensor->to(number) : at::full({}, options.lr, number)) * go;
  const auto dtype = momentum.scalar_type();
  const auto clean = options.found_inf ? at::where(go > 0, grad, at::zeros_like(grad)) : grad;
  momentum.mul_((1 - (1 - options.momentum) * go).to(dtype)).add_(clean, sign);
  const auto target = options.nesterov ? (momentum * options.momentum).add_(clean, sign) : momentum;
  const auto [x, unfolding] = lmo_direction(target, options.unfolding, options.polar);
  descend_on_device(param, x, adjusted_scale(unfolding, options.adjust_lr_fn), lr, options);
}

// The scratch memory of a tensor's update, in entries, and its cost, in products of entries.
struct Need {
  int64_t unfolding;
  int64_t memory;
  double cost;
};

Need need(at::IntArrayRef shape, const UnfoldingStrategy& strategy) {
  const auto unfolding = (strategy.is_online() ? UnfoldingStrategy("balanced") : strategy).choose(shape);
  const int64_t m = std::min(unfolding.rows(), unfolding.cols()),
                n = std::max(unfolding.rows(), unfolding.cols());
  // The unfolding, the Gram matrix and two inverses; online two unfoldings, each with three factors, and one
  // more factor at a time.
  const int64_t memory = strategy.is_online() ? 2 * m * n + 9 * m * m : m * n + 3 * m * m;
  return {m * n, memory, static_cast<double>(m) * m * (n + m)};
}

// Scratch memory in sizes of the largest unfolding: what that one needs by itself.
int64_t budget_of(const UnfoldingStrategy& strategy) { return strategy.is_online() ? 11 : 5; }

// In entries: what no one minds.
constexpr int64_t kLeastBudget = int64_t{1} << 22;

// Calls work(i) for every tensor, the costliest first. Where the budget allows one for each thread, they are
// done side by side on one thread each; the others before them one after the other on all threads.
template <typename Work>
void for_each_tensor(at::TensorList tensors, const UnfoldingStrategy& strategy, Work work) {
  std::vector<Need> needs;
  int64_t budget = kLeastBudget;
  for (const auto& tensor : tensors) {
    needs.push_back(need(tensor.sizes(), strategy));
    budget = std::max(budget, budget_of(strategy) * needs.back().unfolding);
  }
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return needs[a].cost > needs[b].cost; });
  const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  std::vector<size_t> small;
  for (const size_t i : order) {
    if (tensors[i].is_cpu() && threads > 1 && threads * needs[i].memory <= budget) {
      small.push_back(i);
    } else {
      work(i);
    }
  }
  std::atomic<size_t> next = 0;
  const auto lanes = std::min<int64_t>(threads, static_cast<int64_t>(small.size()));
  parallel_calls(0, lanes, 1, [&](int64_t, int64_t) {
    for (size_t i = next++; i < small.size(); i = next++) work(small[i]);
  });
}

}  // namespace

void StepOptions::check() const {
  for (const auto& [name, value] :
       {std::pair{"lr", lr}, std::pair{"momentum", momentum}, std::pair{"weight_decay", weight_decay}}) {
    TORCH_CHECK_VALUE(std::isfinite(value), "[tensorion.step] ", name, " must be finite, got ", value);
  }
  TORCH_CHECK_VALUE(
      adjust_lr_fn == "match_rms_adamw" || adjust_lr_fn == "original" || adjust_lr_fn == "conv_radius",
      "[tensorion.step] adjust_lr_fn must be 'match_rms_adamw', 'original' or 'conv_radius', got '",
      adjust_lr_fn, "'");
  polar.check();
}

double adjusted_scale(const Unfolding& unfolding, const std::string& adjust_lr_fn) {
  const auto m = static_cast<double>(unfolding.rows());
  const auto n = static_cast<double>(unfolding.cols());
  if (adjust_lr_fn == "match_rms_adamw") return 0.2 * std::sqrt(std::max(m, n));
  if (adjust_lr_fn == "original") return std::sqrt(std::max(1.0, m / std::max(1.0, n)));
  double taps = 1;
  for (size_t mode = 2; mode < unfolding.shape().size(); ++mode)
    taps *= static_cast<double>(unfolding.shape()[mode]);
  return 1 / std::sqrt(std::max(1.0, taps));
}

void step(at::TensorList params, at::TensorList grads, at::TensorList momenta, const StepOptions& options) {
  const NoAutocastGuard no_autocast;
  options.check();
  check_lists(params, grads, momenta);
  check_unfoldings(params, options.unfolding);
  const c10::NoGradGuard no_grad;
  const bool on_device = options.lr_tensor || options.found_inf;
  for_each_tensor(params, options.unfolding, [&](size_t i) {
    (on_device ? update_on_device : update)(params[i], grads[i], momenta[i], options);
  });
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
  const double sign = options.maximize ? -1 : 1;
  for (size_t i = 0; i < momenta.size(); ++i) add_gradient(options.momentum, momenta[i], sign, grads[i]);
}

std::vector<at::Tensor> directions(at::TensorList targets, const StepOptions& options) {
  const NoAutocastGuard no_autocast;
  options.check();
  check_floating(targets, "momenta");
  check_unfoldings(targets, options.unfolding);
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> found;
  for (const auto& target : targets) found.push_back(at::empty(target.sizes(), target.options()));
  for_each_tensor(targets, options.unfolding, [&](size_t i) {
    // As in `step`, values are looked at on the CPU only.
    if (targets[i].is_cpu() && !is_finite(targets[i])) {
      found[i].fill_(NAN);
      return;
    }
    const auto direction = lmo_direction(targets[i], options.unfolding, options.polar);
    copy_entries(direction.x, found[i]);
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
    if (options.lr_tensor) {
      const auto lr = options.lr_tensor->to(params[i].device(), at::kFloat);
      descend_on_device(params[i], directions[i], 1, lr, options);
    } else {
      descend(params[i], directions[i], 1, options);
    }
  }
}

double solving_cost(at::IntArrayRef shape, const UnfoldingStrategy& unfolding) {
  return need(shape, unfolding).cost;
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
