// The options of the optimizer, and how it is saved and loaded.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/optim/serialize.h>
#include <torch/serialize/archive.h>

#include <cmath>

#include "tensorion/optimizer.h"

namespace tensorion {
namespace {

using torch::IValue;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

template <typename T>
T read(InputArchive& archive, const std::string& key) {
  IValue value;
  TORCH_CHECK_VALUE(archive.try_read(key, value), "[tensorion.Tensorion] the saved options lack '", key, "'");
  return value.to<T>();
}

// A saved tensor as the parameter's state: in this dtype, on its device, and usable outside of inference
// mode.
at::Tensor converted(const at::Tensor& saved, const at::Tensor& param, at::ScalarType dtype) {
  const auto tensor = saved.to(param.device(), dtype);
  return tensor.is_inference() ? tensor.clone() : tensor;
}

// The saved state as that of the parameter. Throws if its algorithm lacks a tensor or one has another shape.
std::unique_ptr<TensorionParamState> fitted(const TensorionParamState& saved, const std::string& algorithm,
                                            const at::Tensor& param, const std::string& name) {
  const auto fit = [&](const char* key, const at::Tensor& tensor, at::IntArrayRef shape,
                       at::ScalarType dtype) {
    TORCH_CHECK_VALUE(tensor.defined(), "[tensorion.Tensorion] the saved state of ", name, " lacks its ",
                      key);
    TORCH_CHECK_VALUE(tensor.sizes() == shape, "[tensorion.Tensorion] expected a ", key, " of shape ", shape,
                      " for ", name, ", got ", tensor.sizes());
    return converted(tensor, param, dtype);
  };
  auto state = std::make_unique<TensorionParamState>();
  if (algorithm == "adamw") {
    state->step(fit("step", saved.step(), {}, at::kFloat));
    state->exp_avg(fit("exp_avg", saved.exp_avg(), param.sizes(), param.scalar_type()));
    state->exp_avg_sq(fit("exp_avg_sq", saved.exp_avg_sq(), param.sizes(), param.scalar_type()));
  } else {
    state->momentum_buffer(
        fit("momentum_buffer", saved.momentum_buffer(), param.sizes(), param.scalar_type()));
  }
  return state;
}

}  // namespace

void TensorionOptions::check() const {
  const auto not_negative = [](const char* name, double value) {
    TORCH_CHECK_VALUE(value >= 0 && std::isfinite(value), "[tensorion.Tensorion] ", name,
                      " must be finite and not negative, got ", value);
  };
  const auto below_one = [](const char* name, double value) {
    TORCH_CHECK_VALUE(value >= 0 && value < 1, "[tensorion.Tensorion] ", name, " must be in [0, 1), got ",
                      value);
  };
  not_negative("lr", lr());
  below_one("momentum", momentum());
  not_negative("weight_decay", weight_decay());
  not_negative("fallback_lr", fallback_lr().value_or(0));
  not_negative("fallback_weight_decay", fallback_weight_decay().value_or(0));
  below_one("fallback_betas", std::get<0>(fallback_betas()));
  below_one("fallback_betas", std::get<1>(fallback_betas()));
  not_negative("fallback_eps", fallback_eps());
  below_one("fallback_momentum", fallback_momentum());
  check_step();
}

void TensorionOptions::check_step() const {
  step_options().check();
  for (const double value : {std::get<0>(fallback_betas()), std::get<1>(fallback_betas())}) {
    TORCH_CHECK_VALUE(std::isfinite(value), "[tensorion.Tensorion] fallback_betas must be finite, got ",
                      value);
  }
  TORCH_CHECK_VALUE(std::isfinite(fallback_eps()), "[tensorion.Tensorion] fallback_eps must be finite, got ",
                    fallback_eps());
  TORCH_CHECK_VALUE(min_order() >= 1, "[tensorion.Tensorion] min_order must be at least 1, got ",
                    min_order());
  TORCH_CHECK_VALUE(!fallback() || *fallback() == "adamw" || *fallback() == "sgd",
                    "[tensorion.Tensorion] fallback must be 'adamw', 'sgd' or nothing, got '",
                    fallback().value_or(""), "'");
  TORCH_CHECK_VALUE(nonfinite() == "error" || nonfinite() == "skip" || nonfinite() == "ignore",
                    "[tensorion.Tensorion] nonfinite must be 'error', 'skip' or 'ignore', got '", nonfinite(),
                    "'");
  TORCH_CHECK_VALUE(
      algorithm().empty() || algorithm() == "tensorion" || algorithm() == "adamw" || algorithm() == "sgd",
      "[tensorion.Tensorion] algorithm must be 'tensorion', 'adamw' or 'sgd', got '", algorithm(), "'");
}

StepOptions TensorionOptions::step_options() const {
  StepOptions options;
  options.lr = lr();
  options.momentum = momentum();
  options.nesterov = nesterov();
  options.weight_decay = weight_decay();
  options.unfolding = unfolding();
  options.polar = {polar(), ns_coefficients(), ns_steps()};
  options.adjust_lr_fn = adjust_lr_fn();
  options.maximize = maximize();
  return options;
}

void TensorionOptions::serialize(OutputArchive& archive) const {
  archive.write("lr", IValue(lr()));
  archive.write("momentum", IValue(momentum()));
  archive.write("nesterov", IValue(nesterov()));
  archive.write("weight_decay", IValue(weight_decay()));
  archive.write("unfolding", IValue(unfolding().str()));
  archive.write("polar", IValue(polar()));
  std::vector<double> coefficients;
  for (const auto& row : ns_coefficients()) coefficients.insert(coefficients.end(), row.begin(), row.end());
  archive.write("ns_coefficients", IValue(coefficients));
  archive.write("ns_steps", IValue(ns_steps()));
  archive.write("adjust_lr_fn", IValue(adjust_lr_fn()));
  archive.write("min_order", IValue(min_order()));
  archive.write("fallback", IValue(fallback()));
  archive.write("fallback_lr", IValue(fallback_lr()));
  archive.write("fallback_weight_decay", IValue(fallback_weight_decay()));
  archive.write("fallback_betas", IValue(fallback_betas()));
  archive.write("fallback_eps", IValue(fallback_eps()));
  archive.write("fallback_momentum", IValue(fallback_momentum()));
  archive.write("nonfinite", IValue(nonfinite()));
  archive.write("maximize", IValue(maximize()));
  archive.write("algorithm", IValue(algorithm()));
}

void TensorionOptions::serialize(InputArchive& archive) {
  lr(read<double>(archive, "lr"));
  momentum(read<double>(archive, "momentum"));
  nesterov(read<bool>(archive, "nesterov"));
  weight_decay(read<double>(archive, "weight_decay"));
  unfolding(UnfoldingStrategy::parse(read<std::string>(archive, "unfolding")));
  polar(read<std::string>(archive, "polar"));
  const auto coefficients = read<std::vector<double>>(archive, "ns_coefficients");
  Coefficients rows;
  for (size_t i = 0; i + 2 < coefficients.size(); i += 3)
    rows.push_back({coefficients[i], coefficients[i + 1], coefficients[i + 2]});
  ns_coefficients(rows);
  ns_steps(read<int64_t>(archive, "ns_steps"));
  adjust_lr_fn(read<std::string>(archive, "adjust_lr_fn"));
  min_order(read<int64_t>(archive, "min_order"));
  fallback(read<std::optional<std::string>>(archive, "fallback"));
  fallback_lr(read<std::optional<double>>(archive, "fallback_lr"));
  fallback_weight_decay(read<std::optional<double>>(archive, "fallback_weight_decay"));
  fallback_betas(read<Betas>(archive, "fallback_betas"));
  fallback_eps(read<double>(archive, "fallback_eps"));
  fallback_momentum(read<double>(archive, "fallback_momentum"));
  nonfinite(read<std::string>(archive, "nonfinite"));
  maximize(read<bool>(archive, "maximize"));
  algorithm(read<std::string>(archive, "algorithm"));
}

void TensorionParamState::serialize(OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(momentum_buffer);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(step);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg_sq);
}

void TensorionParamState::serialize(InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, momentum_buffer);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, step);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, exp_avg);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, exp_avg_sq);
}

void Tensorion::save(OutputArchive& archive) const {
  torch::optim::serialize<TensorionParamState, TensorionOptions>(archive, *this);
  archive.write("skipped_steps", IValue(skipped_steps()));
}

void Tensorion::load(InputArchive& archive) {
  const c10::InferenceMode ordinary_tensors(false);
  InputArchive state_archive, group_archive;
  archive.read("state", state_archive);
  archive.read("param_groups", group_archive);
  ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>> saved_state;
  torch::optim::detail::serialize<TensorionParamState>(state_archive, saved_state);
  std::vector<std::pair<std::vector<std::string>, std::unique_ptr<torch::optim::OptimizerOptions>>>
      saved_groups;
  torch::optim::detail::serialize<TensorionOptions>(group_archive, saved_groups);
  const auto skipped = read<int64_t>(archive, "skipped_steps");

  TORCH_CHECK_VALUE(saved_groups.size() == param_groups_.size(),
                    "[tensorion.Tensorion] expected the state of ", param_groups_.size(),
                    " param groups, got ", saved_groups.size());
  decltype(state_) loaded;
  for (size_t g = 0; g < saved_groups.size(); ++g) {
    const auto& params = param_groups_[g].params();
    const auto& keys = saved_groups[g].first;
    TORCH_CHECK_VALUE(keys.size() == params.size(), "[tensorion.Tensorion] expected the state of ",
                      params.size(), " parameters in group ", g, ", got ", keys.size());
    const auto& saved = static_cast<const TensorionOptions&>(*saved_groups[g].second);
    const auto& current = static_cast<const TensorionOptions&>(param_groups_[g].options()).algorithm();
    TORCH_CHECK_VALUE(saved.algorithm() == current, "[tensorion.Tensorion] expected the state of algorithm '",
                      current, "' in group ", g, ", got '", saved.algorithm(), "'");
    saved.check_step();
    for (size_t i = 0; i < params.size(); ++i) {
      const auto found =
          saved_state.find(reinterpret_cast<void*>(std::stoull(keys[i])));  // NOLINT: torch's key
      if (found == saved_state.end()) continue;
      loaded[params[i].unsafeGetTensorImpl()] =
          fitted(static_cast<const TensorionParamState&>(*found->second), current, params[i],
                 c10::str("parameter ", i, " of group ", g));
    }
  }
  for (size_t g = 0; g < saved_groups.size(); ++g)
    param_groups_[g].set_options(std::move(saved_groups[g].second));
  state_ = std::move(loaded);
  skipped_ = at::full({}, static_cast<double>(skipped), at::kFloat);
}

}  // namespace tensorion
