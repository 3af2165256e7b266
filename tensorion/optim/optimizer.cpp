#include "tensorion/optimizer.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/optim/serialize.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tensorion/core/tensor_groups.h"
#include "tensorion/fallback.h"
#include "tensorion/optim/fallback_rule.h"
#include "tensorion/optim/parameter_checks.h"
#include "tensorion/param_groups.h"

namespace tensorion {
namespace {

using torch::optim::OptimizerParamGroup;

// Returns the name of a parameter in error messages.
std::string parameter_name(size_t group, size_t index, const at::Tensor& param) {
  return c10::str("parameter ", index, " of group ", group, ", shape ", param.sizes());
}

const TensorionOptions& options_of(const OptimizerParamGroup& group) {
  return static_cast<const TensorionOptions&>(group.options());
}

// Returns compute(). If it throws, the error also names the option and the parameter.
template <typename Compute>
auto with_error_context(const std::string& option, const std::string& parameter, Compute compute) {
  try {
    return compute();
  } catch (const c10::ValueError& error) {
    TORCH_CHECK_VALUE(false, "[tensorion.Tensorion] ", option, " does not fit ", parameter, ": ",
                      error.what_without_backtrace());
  }
}

// Throws if the unfolding or the slices in the options are not valid for a parameter of this shape.
void check_unfolding(at::IntArrayRef shape, const TensorionOptions& options, const std::string& name) {
  const Slicing slicing{options.batch_modes(), options.split_sizes()};
  const auto blocks =
      with_error_context("batch_modes or split_sizes", name, [&] { return slicing.block_shapes(shape); });
  // For "online", this checks the balanced unfolding. If it exists, there is an unfolding to choose.
  for (const auto& block : blocks) {
    with_error_context("unfolding " + options.unfolding().str(), name,
                       [&] { return options.unfolding().choose(block); });
  }
}

// Splits a group into a Tensorion group and a fallback group, either of which may be missing. The parameters
// are assigned by fallback_reason. A group whose options have an algorithm is not split. `number` is the
// index of the group in error messages.
std::vector<OptimizerParamGroup> split_group(const OptimizerParamGroup& group,
                                             const TensorionOptions& defaults, size_t number) {
  TORCH_CHECK_VALUE(!group.params().empty(),
                    "[tensorion.Tensorion] expected at least one parameter in group ", number, ", got none");
  auto options = group.has_options() ? options_of(group) : defaults;
  options.check();
  std::vector<at::Tensor> tensorion_params, fallback_params;
  for (size_t i = 0; i < group.params().size(); ++i) {
    const auto& param = group.params()[i];
    const auto name = parameter_name(number, i, param);
    std::string reason;
    if (options.algorithm().empty()) {
      reason = with_error_context("batch_modes or split_sizes", name,
                                  [&] { return fallback_reason(param.sizes(), options); });
    }
    const bool is_tensorion =
        options.algorithm().empty() ? reason.empty() : options.algorithm() == "tensorion";
    TORCH_CHECK_VALUE(is_tensorion || options.fallback() || !options.algorithm().empty(),
                      "[tensorion.Tensorion] ", name, " needs a fallback (", reason, "), got none");
    if (is_tensorion) check_unfolding(param.sizes(), options, name);
    (is_tensorion ? tensorion_params : fallback_params).push_back(param);
  }
  if (!options.algorithm().empty()) return {param_group(group.params(), options)};
  std::vector<OptimizerParamGroup> groups;
  if (!tensorion_params.empty())
    groups.push_back(param_group(tensorion_params, TensorionOptions(options).algorithm("tensorion")));
  if (!fallback_params.empty()) groups.push_back(param_group(fallback_params, fallback_options(options)));
  return groups;
}

// Throws if the gradient of a parameter cannot be used.
void check_gradient(const at::Tensor& param, const std::string& name) {
  const auto& grad = param.grad();
  TORCH_CHECK_VALUE(!param.is_inference() || c10::InferenceMode::is_enabled(), "[tensorion.Tensorion] ", name,
                    " was made in inference mode and can only be updated in inference mode");
  TORCH_CHECK_VALUE(grad.layout() == at::kStrided, "[tensorion.Tensorion] expected a dense gradient, got ",
                    grad.layout(), " for ", name);
  TORCH_CHECK_VALUE(grad.sizes() == param.sizes() && grad.device() == param.device() &&
                        grad.scalar_type() == param.scalar_type(),
                    "[tensorion.Tensorion] expected a gradient like ", name, " (", param.scalar_type(),
                    " on ", param.device(), "), got shape ", grad.sizes(), ", ", grad.scalar_type(), " on ",
                    grad.device());
}

// Initializes the tensors of the state that are missing: all in the first step, and those that an option
// requires if it was changed later.
void init_missing_state(TensorionParamState& state, const at::Tensor& param,
                        const TensorionOptions& options) {
  // Tensors that are created in inference mode cannot be updated outside of it.
  const c10::InferenceMode ordinary_tensors(false);
  const c10::NoGradGuard no_grad;
  const auto number = at::TensorOptions().dtype(at::kFloat);
  const auto zeros = [&](at::Tensor& tensor) {
    if (!tensor.defined()) tensor = at::zeros_like(param);
  };
  if (options.algorithm() == "adamw") {
    if (!state.step().defined()) state.step(at::zeros({}, number.device(param.device())));
    zeros(state.exp_avg());
    zeros(state.exp_avg_sq());
    return;
  }
  zeros(state.momentum_buffer());
  if (options.keeps_unfolding() && !state.unfolding().defined()) {
    state.step(at::zeros({}, number));
    state.unfolding(at::zeros(options.choice_shape(param.sizes()), number.device(param.device())));
  }
}

// The parameters of one group that have a gradient, with their state.
struct GroupTensors {
  std::vector<at::Tensor> params, grads, momenta, exp_avgs, exp_avg_sqs, steps, unfoldings;
};

// Performs a step with stored choices of unfoldings: first for the tensors whose unfolding is chosen again in
// this step, then for the others.
void step_with_choices(const GroupTensors& tensors, const StepOptions& options, int64_t interval) {
  std::array<std::vector<size_t>, 2> by_decision;
  for (size_t i = 0; i < tensors.params.size(); ++i) {
    by_decision[tensors.steps[i].item<int64_t>() % interval == 0 ? 0 : 1].push_back(i);
  }
  for (const bool decide : {true, false}) {
    const auto& indices = by_decision[decide ? 0 : 1];
    if (indices.empty()) continue;
    const auto choices = at_indices(tensors.unfoldings, indices);
    step(at_indices(tensors.params, indices), at_indices(tensors.grads, indices),
         at_indices(tensors.momenta, indices), options, {choices, decide});
  }
  for (const auto& count : tensors.steps) count.add_(1);
}

// Updates the parameters of a group by its algorithm.
void update_group(const GroupTensors& tensors, const TensorionOptions& options,
                  const std::optional<at::Tensor>& found_inf) {
  if (options.algorithm() == "tensorion") {
    auto step_options = options.step_options();
    step_options.found_inf = found_inf;
    if (options.keeps_unfolding()) return step_with_choices(tensors, step_options, options.online_interval());
    step(tensors.params, tensors.grads, tensors.momenta, step_options);
  } else if (options.algorithm() == "adamw") {
    const auto [beta1, beta2] = options.fallback_betas();
    adamw_step(tensors.params, tensors.grads, tensors.exp_avgs, tensors.exp_avg_sqs, tensors.steps,
               {options.lr(), beta1, beta2, options.fallback_eps(), options.weight_decay(),
                options.maximize(), std::nullopt, found_inf});
  } else {
    sgd_step(tensors.params, tensors.grads, tensors.momenta,
             {options.lr(), options.momentum(), options.weight_decay(), options.maximize(), std::nullopt,
              found_inf});
  }
}

}  // namespace

Tensorion::Tensorion(const std::vector<OptimizerParamGroup>& groups, const TensorionOptions& defaults)
    : Optimizer(std::vector<OptimizerParamGroup>{}, std::make_unique<TensorionOptions>(defaults)) {
  defaults.check();
  TORCH_CHECK_VALUE(!groups.empty(), "[tensorion.Tensorion] expected at least one param group, got none");
  for (const auto& group : groups) add_param_group(group);
}

void Tensorion::add_param_group(const OptimizerParamGroup& group) {
  std::vector<at::Tensor> params;
  std::vector<std::string> names;
  const auto collect = [&](const OptimizerParamGroup& source, size_t number, const std::string& prefix) {
    for (size_t i = 0; i < source.params().size(); ++i) {
      params.push_back(source.params()[i]);
      names.push_back(prefix + parameter_name(number, i, source.params()[i]));
    }
  };
  collect(group, added_groups_, "");
  for (size_t i = 0; i < params.size(); ++i) {
    TORCH_CHECK_VALUE(!params[i].defined() || params[i].is_leaf(),
                      "[tensorion.Tensorion] expected leaf tensors, got ", names[i],
                      ", which is a non-leaf tensor: the result of a computation");
  }
  for (size_t g = 0; g < param_groups_.size(); ++g) collect(param_groups_[g], g, "the optimizer's ");
  check_parameters(params, names);
  const auto parts = split_group(group, static_cast<const TensorionOptions&>(*defaults_), added_groups_);
  const auto count = param_groups_.size();
  try {
    for (const auto& part : parts) {
      Optimizer::add_param_group(part);
      // For optimizers that it does not ship, libtorch replaces the options of a group by the defaults.
      param_groups_.back().set_options(part.options().clone());
    }
  } catch (...) {
    while (param_groups_.size() > count) param_groups_.pop_back();
    throw;
  }
  ++added_groups_;
}

OptimizerParamGroup param_group(std::vector<at::Tensor> params, TensorionOptions options) {
  return {std::move(params), std::make_unique<TensorionOptions>(std::move(options))};
}

at::Tensor Tensorion::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode enable_grad(true);
    loss = closure();
  }
  const c10::NoGradGuard no_grad;
  // Check everything before anything is changed. Gradients are grouped by their option `nonfinite`.
  std::vector<at::Tensor> error_grads, skip_grads;
  std::vector<std::string> names;
  for (size_t g = 0; g < param_groups_.size(); ++g) {
    const auto& options = options_of(param_groups_[g]);
    options.check_step();
    TORCH_CHECK_VALUE(!options.algorithm().empty(), "[tensorion.Tensorion] param group ", g,
                      " has no algorithm; add groups with Tensorion::add_param_group");
    for (size_t i = 0; i < param_groups_[g].params().size(); ++i) {
      const auto& param = param_groups_[g].params()[i];
      if (!param.grad().defined()) continue;
      const auto name = parameter_name(g, i, param);
      check_gradient(param, name);
      if (options.nonfinite() == "skip") skip_grads.push_back(param.grad());
      if (options.nonfinite() == "error") {
        error_grads.push_back(param.grad());
        names.push_back(name);
      }
    }
  }
  if (!error_grads.empty()) {
    const auto bad = first_nonfinite(error_grads).item<int64_t>();
    TORCH_CHECK_VALUE(bad < 0, "[tensorion.Tensorion] the gradient of ", names[bad],
                      " is not finite; nothing was changed");
  }
  std::optional<at::Tensor> found_inf;
  if (!skip_grads.empty()) {
    found_inf = any_nonfinite(skip_grads);
    // Count in place, so that a replayed CUDA graph also counts.
    if (!skipped_.defined()) skipped_ = at::zeros_like(*found_inf);
    skipped_.add_(found_inf->to(skipped_.device()));
    if (found_inf->is_cpu()) {
      if (found_inf->item<float>() != 0) return loss;
      found_inf.reset();
    }
  }
  for (auto& group : param_groups_) {
    const auto& options = options_of(group);
    GroupTensors tensors;
    for (const auto& param : group.params()) {
      if (!param.grad().defined()) continue;
      auto& slot = state_[param.unsafeGetTensorImpl()];
      if (!slot) slot = std::make_unique<TensorionParamState>();
      auto& state = static_cast<TensorionParamState&>(*slot);
      init_missing_state(state, param, options);
      tensors.params.push_back(param);
      tensors.grads.push_back(param.grad());
      tensors.momenta.push_back(state.momentum_buffer());
      tensors.exp_avgs.push_back(state.exp_avg());
      tensors.exp_avg_sqs.push_back(state.exp_avg_sq());
      tensors.steps.push_back(state.step());
      tensors.unfoldings.push_back(state.unfolding());
    }
    if (!tensors.params.empty()) update_group(tensors, options, found_inf);
  }
  return loss;
}

int64_t Tensorion::skipped_steps() const {
  return skipped_.defined() ? static_cast<int64_t>(skipped_.item<float>()) : 0;
}

}  // namespace tensorion
