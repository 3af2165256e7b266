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
#include "tensorion/optim/parameters.h"
#include "tensorion/param_groups.h"

namespace tensorion {
namespace {

using torch::optim::OptimizerParamGroup;

std::string describe(size_t group, size_t index, const at::Tensor& param) {
  return c10::str("parameter ", index, " of group ", group, ", shape ", param.sizes());
}

const TensorionOptions& options_of(const OptimizerParamGroup& group) {
  return static_cast<const TensorionOptions&>(group.options());
}

// The options that the tensors of low order in a group get.
TensorionOptions fallback_options(TensorionOptions options, const std::string& algorithm) {
  options.algorithm(algorithm);
  options.lr(options.fallback_lr().value_or(options.lr()));
  options.weight_decay(options.fallback_weight_decay().value_or(options.weight_decay()));
  if (options.algorithm() == "sgd") options.momentum(options.fallback_momentum());
  return options;
}

// Returns what `compute` does. Its errors tell that the option does not fit the parameter.
template <typename Compute>
auto naming(const std::string& option, const std::string& parameter, Compute compute) {
  try {
    return compute();
  } catch (const c10::ValueError& error) {
    TORCH_CHECK_VALUE(false, "[tensorion.Tensorion] ", option, " does not fit ", parameter, ": ",
                      error.what_without_backtrace());
  }
}

// Throws if a slice of the parameter has no such unfolding.
void check_unfolding(at::IntArrayRef shape, const TensorionOptions& options, const std::string& name) {
  const Slicing slicing{options.batch_modes(), options.split_sizes()};
  const auto blocks = naming("batch_modes or split_sizes", name, [&] { return slicing.block_shapes(shape); });
  // If the balanced unfolding exists, "online" has one to choose.
  for (const auto& block : blocks) {
    naming("unfolding " + options.unfolding().str(), name, [&] { return options.unfolding().choose(block); });
  }
}

// A group in up to two: by fallback_reason, unless its options name the algorithm already.
std::vector<OptimizerParamGroup> split(const OptimizerParamGroup& group, const TensorionOptions& defaults,
                                       size_t number) {
  TORCH_CHECK_VALUE(!group.params().empty(),
                    "[tensorion.Tensorion] expected at least one parameter in group ", number, ", got none");
  auto options = group.has_options() ? options_of(group) : defaults;
  options.check();
  std::vector<at::Tensor> high, low;
  for (size_t i = 0; i < group.params().size(); ++i) {
    const auto& param = group.params()[i];
    const auto name = describe(number, i, param);
    std::string reason;
    if (options.algorithm().empty()) {
      reason =
          naming("batch_modes or split_sizes", name, [&] { return fallback_reason(param.sizes(), options); });
    }
    const bool is_high = options.algorithm().empty() ? reason.empty() : options.algorithm() == "tensorion";
    TORCH_CHECK_VALUE(is_high || options.fallback() || !options.algorithm().empty(), "[tensorion.Tensorion] ",
                      name, " is not Tensorion's (", reason, "), and there is no fallback");
    if (is_high) check_unfolding(param.sizes(), options, name);
    (is_high ? high : low).push_back(param);
  }
  if (!options.algorithm().empty()) return {param_group(group.params(), options)};
  std::vector<OptimizerParamGroup> groups;
  if (!high.empty()) groups.push_back(param_group(high, TensorionOptions(options).algorithm("tensorion")));
  if (!low.empty())
    groups.push_back(param_group(low, fallback_options(options, options.fallback().value_or(""))));
  return groups;
}

void check_gradient(const at::Tensor& param, const std::string& name) {
  const auto& grad = param.grad();
  TORCH_CHECK_VALUE(!param.is_inference() || c10::InferenceMode::is_enabled(), "[tensorion.Tensorion] ", name,
                    " was made in inference mode, and can only be updated there");
  TORCH_CHECK_VALUE(grad.layout() == at::kStrided, "[tensorion.Tensorion] expected a dense gradient, got ",
                    grad.layout(), " for ", name);
  TORCH_CHECK_VALUE(grad.sizes() == param.sizes() && grad.device() == param.device() &&
                        grad.scalar_type() == param.scalar_type(),
                    "[tensorion.Tensorion] expected a gradient like ", name, " (", param.scalar_type(),
                    " on ", param.device(), "), got shape ", grad.sizes(), ", ", grad.scalar_type(), " on ",
                    grad.device());
}

// What the state still lacks: everything at first, and what options that changed need.
void complete_state(TensorionParamState& state, const at::Tensor& param, const TensorionOptions& options) {
  // Tensors made in inference mode could never be updated outside of it.
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

// The step with choices that are kept: first of the tensors for which it is time to decide anew, then of the
// others.
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

void run(const GroupTensors& tensors, const TensorionOptions& options,
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
      names.push_back(prefix + describe(number, i, source.params()[i]));
    }
  };
  collect(group, groups_given_, "");
  for (size_t i = 0; i < params.size(); ++i) {
    TORCH_CHECK_VALUE(!params[i].defined() || params[i].is_leaf(),
                      "[tensorion.Tensorion] expected leaf tensors, got ", names[i],
                      ", which is a non-leaf tensor: the result of a computation");
  }
  for (size_t g = 0; g < param_groups_.size(); ++g) collect(param_groups_[g], g, "the optimizer's ");
  check_parameters(params, names);
  const auto parts = split(group, static_cast<const TensorionOptions&>(*defaults_), groups_given_);
  const auto count = param_groups_.size();
  try {
    for (const auto& part : parts) {
      Optimizer::add_param_group(part);
      // libtorch replaces the options of optimizers that are not its own by the defaults.
      param_groups_.back().set_options(part.options().clone());
    }
  } catch (...) {
    while (param_groups_.size() > count) param_groups_.pop_back();
    throw;
  }
  ++groups_given_;
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
  // Everything is looked at before anything changes.
  std::vector<at::Tensor> watched, skippable;
  std::vector<std::string> names;
  for (size_t g = 0; g < param_groups_.size(); ++g) {
    const auto& options = options_of(param_groups_[g]);
    options.check_step();
    TORCH_CHECK_VALUE(!options.algorithm().empty(), "[tensorion.Tensorion] param group ", g,
                      " has no algorithm: add groups by Tensorion::add_param_group");
    for (size_t i = 0; i < param_groups_[g].params().size(); ++i) {
      const auto& param = param_groups_[g].params()[i];
      if (!param.grad().defined()) continue;
      const auto name = describe(g, i, param);
      check_gradient(param, name);
      if (options.nonfinite() == "skip") skippable.push_back(param.grad());
      if (options.nonfinite() == "error") {
        watched.push_back(param.grad());
        names.push_back(name);
      }
    }
  }
  if (!watched.empty()) {
    const auto bad = first_nonfinite(watched).item<int64_t>();
    TORCH_CHECK_VALUE(bad < 0, "[tensorion.Tensorion] the gradient of ", names[bad],
                      " is not finite; nothing was changed");
  }
  std::optional<at::Tensor> found_inf;
  if (!skippable.empty()) {
    found_inf = any_nonfinite(skippable);
    // Counted in place, so that replays of a captured graph count, too.
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
      complete_state(state, param, options);
      tensors.params.push_back(param);
      tensors.grads.push_back(param.grad());
      tensors.momenta.push_back(state.momentum_buffer());
      tensors.exp_avgs.push_back(state.exp_avg());
      tensors.exp_avg_sqs.push_back(state.exp_avg_sq());
      tensors.steps.push_back(state.step());
      tensors.unfoldings.push_back(state.unfolding());
    }
    if (!tensors.params.empty()) run(tensors, options, found_inf);
  }
  return loss;
}

int64_t Tensorion::skipped_steps() const {
  return skipped_.defined() ? static_cast<int64_t>(skipped_.item<float>()) : 0;
}

}  // namespace tensorion
