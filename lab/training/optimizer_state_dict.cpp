#include "lab/training/optimizer_state_dict.h"

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tensorion/optimizer.h"

namespace tensorion::lab {
namespace {

// A tensor in TensorionParamState.
struct Field {
  const char* name;
  at::Tensor& (TensorionParamState::*of)() noexcept;
};

constexpr Field kMomentum{"momentum_buffer", &TensorionParamState::momentum_buffer};
constexpr Field kUnfolding{"unfolding", &TensorionParamState::unfolding};
constexpr Field kStep{"step", &TensorionParamState::step};
constexpr Field kExpAvg{"exp_avg", &TensorionParamState::exp_avg};
constexpr Field kExpAvgSq{"exp_avg_sq", &TensorionParamState::exp_avg_sq};

std::vector<Field> fields_of(const torch::optim::OptimizerParamGroup& group) {
  const auto* options = dynamic_cast<const TensorionOptions*>(&group.options());
  TORCH_CHECK_TYPE(options != nullptr,
                   "[tensorion.optimizer_state] expected param groups of the optimizer Tensorion, got a "
                   "different type");
  if (options->algorithm() == "adamw") return {kStep, kExpAvg, kExpAvgSq};
  if (options->keeps_unfolding()) return {kMomentum, kUnfolding, kStep};
  return {kMomentum};
}

std::map<const void*, std::string> names_of(const torch::nn::Module& module) {
  std::map<const void*, std::string> names;
  for (const auto& parameter : module.named_parameters()) {
    names[parameter.value().unsafeGetTensorImpl()] = parameter.key();
  }
  return names;
}

// Calls visit(parameter, its name, the fields of its state) for each parameter of the optimizer.
template <typename Visit>
void for_each_parameter(torch::optim::Optimizer& optimizer, const torch::nn::Module& module, Visit visit) {
  const auto names = names_of(module);
  for (const auto& group : optimizer.param_groups()) {
    const auto fields = fields_of(group);
    for (const auto& parameter : group.params()) {
      const auto name = names.find(parameter.unsafeGetTensorImpl());
      TORCH_CHECK_VALUE(name != names.end(), "[tensorion.optimizer_state] a parameter of shape ",
                        parameter.sizes(), " does not belong to the model");
      visit(parameter, name->second, fields);
    }
  }
}

}  // namespace

NamedTensors optimizer_state_dict(torch::optim::Optimizer& optimizer, const torch::nn::Module& module) {
  NamedTensors tensors;
  for_each_parameter(optimizer, module,
                     [&](const at::Tensor& parameter, const std::string& name, const auto& fields) {
                       const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
                       if (found == optimizer.state().end()) return;
                       auto& state = static_cast<TensorionParamState&>(*found->second);
                       for (const auto& field : fields)
                         tensors[name + "." + field.name] = (state.*field.of)();
                     });
  return tensors;
}

void load_optimizer_state_dict(torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
                               const NamedTensors& tensors, const std::string& source) {
  const c10::NoGradGuard no_grad;
  std::vector<std::pair<void*, std::unique_ptr<TensorionParamState>>> loaded;
  std::set<std::string> used;
  for_each_parameter(
      optimizer, module, [&](const at::Tensor& parameter, const std::string& name, const auto& fields) {
        // A parameter that never had a gradient has no state.
        if (!tensors.contains(name + "." + fields.front().name)) return;
        auto state = std::make_unique<TensorionParamState>();
        for (const auto& field : fields) {
          const std::string key = name + "." + field.name;
          const auto stored = tensors.find(key);
          TORCH_CHECK_VALUE(stored != tensors.end(), "[tensorion.optimizer_state] ", source, ": ", key,
                            " is missing");
          // Tensorion keeps its step count on the CPU, because control flow depends on it.
          const bool on_cpu = field.of == kStep.of && fields.front().of == kMomentum.of;
          const auto number =
              at::TensorOptions(at::kFloat).device(on_cpu ? c10::Device(at::kCPU) : parameter.device());
          auto target = field.of == kStep.of        ? at::empty({}, number)
                        : field.of == kUnfolding.of ? at::empty(stored->second.sizes(), number)
                                                    : at::empty_like(parameter);
          TORCH_CHECK_VALUE(
              stored->second.sizes() == target.sizes() && stored->second.dtype() == target.dtype(),
              "[tensorion.optimizer_state] ", source, ": ", key, " must have shape ", target.sizes(),
              " and dtype ", target.scalar_type(), ", got ", stored->second.sizes(), " and ",
              stored->second.scalar_type());
          target.copy_(stored->second);
          (state.get()->*field.of)() = target;
          used.insert(key);
        }
        loaded.emplace_back(parameter.unsafeGetTensorImpl(), std::move(state));
      });
  for (const auto& [key, tensor] : tensors) {
    TORCH_CHECK_VALUE(
        used.contains(key), "[tensorion.optimizer_state] ", source, ": ", key,
        " is unexpected: a different algorithm updated this parameter when the checkpoint was written. Older "
        "versions did not apply Tensorion to 1 x 1 kernels. Start the run again");
  }
  optimizer.state().clear();
  for (auto& [key, state] : loaded) optimizer.state()[key] = std::move(state);
}

}  // namespace tensorion::lab
