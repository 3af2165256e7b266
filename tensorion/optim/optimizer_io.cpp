// Saving and loading the state of the optimizer. Options are saved by option_table.cpp.
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

// Converts a saved tensor to the dtype and to the device of the parameter. The result can be updated outside
// of inference mode.
at::Tensor convert_tensor(const at::Tensor& saved, const at::Tensor& param, at::ScalarType dtype) {
  const auto tensor = saved.to(param.device(), dtype);
  return tensor.is_inference() ? tensor.clone() : tensor;
}

// Converts the saved state of a parameter. Throws if a tensor that the algorithm needs is missing or has
// another shape.
std::unique_ptr<TensorionParamState> convert_state(const TensorionParamState& saved,
                                                   const TensorionOptions& options, const at::Tensor& param,
                                                   const std::string& name) {
  const auto convert = [&](const char* key, const at::Tensor& tensor, at::IntArrayRef shape,
                           at::ScalarType dtype) {
    TORCH_CHECK_VALUE(tensor.defined(), "[tensorion.Tensorion] expected a ", key, " in the saved state of ",
                      name, ", got none");
    TORCH_CHECK_VALUE(tensor.sizes() == shape, "[tensorion.Tensorion] expected a ", key, " of shape ", shape,
                      " for ", name, ", got ", tensor.sizes());
    return convert_tensor(tensor, param, dtype);
  };
  auto state = std::make_unique<TensorionParamState>();
  if (options.algorithm() == "adamw") {
    state->step(convert("step", saved.step(), {}, at::kFloat));
    state->exp_avg(convert("exp_avg", saved.exp_avg(), param.sizes(), param.scalar_type()));
    state->exp_avg_sq(convert("exp_avg_sq", saved.exp_avg_sq(), param.sizes(), param.scalar_type()));
  } else {
    state->momentum_buffer(
        convert("momentum_buffer", saved.momentum_buffer(), param.sizes(), param.scalar_type()));
    // If no choice is saved, the first step chooses the unfolding.
    if (saved.unfolding().defined()) {
      state->unfolding(
          convert("unfolding", saved.unfolding(), options.choice_shape(param.sizes()), at::kFloat));
      const auto count = convert("step", saved.step(), {}, at::kFloat);
      state->step(count.cpu());
    }
  }
  return state;
}

using SavedGroups =
    std::vector<std::pair<std::vector<std::string>, std::unique_ptr<torch::optim::OptimizerOptions>>>;

// Throws if the state was saved by an earlier version, in which the fallback updated kernels of size 1: no
// mode of size 1 counted in the order then.
void check_pointwise_split(const SavedGroups& saved_groups,
                           const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  size_t saved_count = 0, count = 0;
  for (const auto& [keys, options] : saved_groups) {
    if (static_cast<const TensorionOptions&>(*options).algorithm() == "tensorion") saved_count += keys.size();
  }
  std::vector<std::string> pointwise;
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto& options = static_cast<const TensorionOptions&>(groups[g].options());
    if (options.algorithm() != "tensorion") continue;
    count += groups[g].params().size();
    for (size_t i = 0; i < groups[g].params().size(); ++i) {
      const auto shape = groups[g].params()[i].sizes();
      if (effective_order(shape) < options.min_order())
        pointwise.push_back(c10::str("parameter ", i, " of group ", g, ", shape ", shape));
    }
  }
  TORCH_CHECK_VALUE(pointwise.empty() || saved_count + pointwise.size() != count,
                    "[tensorion.Tensorion] expected the state of algorithm 'tensorion' for kernels of size "
                    "1, got a state of "
                    "an earlier version, in which the fallback updated them. To use this state, construct "
                    "the optimizer with "
                    "tensorion::param_groups(module, ParamGroupRules().pointwise(false).depthwise(true)). "
                    "The kernels of size "
                    "1 are: ",
                    c10::Join("; ", pointwise));
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
                    "[tensorion.Tensorion] expected 'skipped_steps' in the saved state, got none");

  check_pointwise_split(saved_groups, param_groups_);
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
          convert_state(static_cast<const TensorionParamState&>(*found->second), saved, params[i],
                        c10::str("parameter ", i, " of group ", g));
    }
  }
  for (size_t g = 0; g < saved_groups.size(); ++g)
    param_groups_[g].set_options(std::move(saved_groups[g].second));
  state_ = std::move(loaded);
  skipped_ = at::full({}, static_cast<double>(skipped.toInt()), at::kFloat);
}

}  // namespace tensorion
