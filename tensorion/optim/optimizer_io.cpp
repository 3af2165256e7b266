// How the optimizer is saved and loaded.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/StringUtil.h>
#include <torch/optim/serialize.h>
#include <torch/serialize/archive.h>

#include "tensorion/optimizer.h"
#include "tensorion/unfolding.h"

namespace tensorion {
namespace {

using torch::IValue;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

// A saved tensor as the parameter's state: in this dtype, on its device, and usable outside of inference
// mode.
at::Tensor converted(const at::Tensor& saved, const at::Tensor& param, at::ScalarType dtype) {
  const auto tensor = saved.to(param.device(), dtype);
  return tensor.is_inference() ? tensor.clone() : tensor;
}

// The saved state as that of the parameter. Throws if its algorithm lacks a tensor or one has another shape.
std::unique_ptr<TensorionParamState> fitted(const TensorionParamState& saved, const TensorionOptions& options,
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
  if (options.algorithm() == "adamw") {
    state->step(fit("step", saved.step(), {}, at::kFloat));
    state->exp_avg(fit("exp_avg", saved.exp_avg(), param.sizes(), param.scalar_type()));
    state->exp_avg_sq(fit("exp_avg_sq", saved.exp_avg_sq(), param.sizes(), param.scalar_type()));
  } else {
    state->momentum_buffer(
        fit("momentum_buffer", saved.momentum_buffer(), param.sizes(), param.scalar_type()));
    // Without a choice that is kept, the first step decides.
    if (saved.unfolding().defined()) {
      state->unfolding(fit("unfolding", saved.unfolding(), options.choice_shape(param.sizes()), at::kFloat));
      const auto count = fit("step", saved.step(), {}, at::kFloat);
      state->step(count.cpu());
    }
  }
  return state;
}

using SavedGroups =
    std::vector<std::pair<std::vector<std::string>, std::unique_ptr<torch::optim::OptimizerOptions>>>;

// Throws if the state is of the split before kernels of size 1 became Tensorion's: no mode of size 1 counted
// then.
void check_split(const SavedGroups& saved_groups,
                 const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  size_t saved = 0, count = 0;
  for (const auto& [keys, options] : saved_groups) {
    if (static_cast<const TensorionOptions&>(*options).algorithm() == "tensorion") saved += keys.size();
  }
  std::vector<std::string> moved;
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto& options = static_cast<const TensorionOptions&>(groups[g].options());
    if (options.algorithm() != "tensorion") continue;
    count += groups[g].params().size();
    for (size_t i = 0; i < groups[g].params().size(); ++i) {
      const auto shape = groups[g].params()[i].sizes();
      if (effective_order(shape) < options.min_order())
        moved.push_back(c10::str("parameter ", i, " of group ", g, ", shape ", shape));
    }
  }
  TORCH_CHECK_VALUE(
      moved.empty() || saved + moved.size() != count,
      "[tensorion.Tensorion] expected the state of algorithm 'tensorion' for parameters that are kernels of "
      "size 1, got a state saved when the fallback updated them. To go on with it, make the optimizer of "
      "tensorion::param_groups(module, ParamGroupRules().pointwise(false).depthwise(true)). These are the "
      "parameters: ",
      c10::Join("; ", moved));
}

}  // namespace

void TensorionParamState::serialize(OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(momentum_buffer);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(unfolding);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(step);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg_sq);
}

void TensorionParamState::serialize(InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, momentum_buffer);
  IValue chosen;
  if (archive.try_read("unfolding", chosen) && chosen.isTensor()) unfolding(chosen.toTensor());
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
  SavedGroups saved_groups;
  torch::optim::detail::serialize<TensorionOptions>(group_archive, saved_groups);
  IValue skipped;
  TORCH_CHECK_VALUE(archive.try_read("skipped_steps", skipped),
                    "[tensorion.Tensorion] the saved options lack 'skipped_steps'");

  check_split(saved_groups, param_groups_);
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
          fitted(static_cast<const TensorionParamState&>(*found->second), saved, params[i],
                 c10::str("parameter ", i, " of group ", g));
    }
  }
  for (size_t g = 0; g < saved_groups.size(); ++g)
    param_groups_[g].set_options(std::move(saved_groups[g].second));
  state_ = std::move(loaded);
  skipped_ = at::full({}, static_cast<double>(skipped.toInt()), at::kFloat);
}

}  // namespace tensorion
