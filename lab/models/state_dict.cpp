#include "lab/models/state_dict.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>
#include <torch/types.h>

#include <string_view>

namespace tensorion::lab {
namespace {

// Tables that models compute by themselves, and some files have all the same.
bool is_computed(std::string_view name) {
  return name.ends_with(".relative_position_index") || name.ends_with(".attn_mask");
}

// The same but for the first size: a head for another number of classes.
bool differs_in_classes(const at::Tensor& stored, const at::Tensor& own) {
  return stored.dim() == own.dim() && stored.size(0) != own.size(0) &&
         stored.sizes().slice(1) == own.sizes().slice(1);
}

}  // namespace

NamedTensors state_dict(const torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& parameter : module.named_parameters())
    tensors[parameter.key()] = parameter.value().detach();
  for (const auto& buffer : module.named_buffers()) tensors[buffer.key()] = buffer.value().detach();
  return tensors;
}

bool check_state_dict(const Classifier& model, const NamedTensors& tensors, const std::string& source) {
  const auto own = state_dict(model);
  const std::string weight = model.head_name() + ".weight";
  const std::string bias = model.head_name() + ".bias";
  const auto stored_weight = tensors.find(weight);
  const auto stored_bias = tensors.find(bias);
  const bool new_head = stored_weight != tensors.end() && stored_bias != tensors.end() &&
                        differs_in_classes(stored_weight->second, own.at(weight)) &&
                        differs_in_classes(stored_bias->second, own.at(bias));

  std::vector<std::string> missing, unexpected, mismatched;
  for (const auto& [name, tensor] : own) {
    const auto stored = tensors.find(name);
    if (stored == tensors.end()) {
      missing.push_back(name);
    } else if (stored->second.sizes() != tensor.sizes() && !(new_head && (name == weight || name == bias))) {
      mismatched.push_back(
          c10::str(name, " (expected ", tensor.sizes(), ", got ", stored->second.sizes(), ")"));
    }
  }
  for (const auto& [name, tensor] : tensors) {
    if (!own.contains(name) && !is_computed(name)) unexpected.push_back(name);
  }
  std::string problems;
  if (!missing.empty()) problems += "; missing: " + c10::Join(", ", missing);
  if (!unexpected.empty()) problems += "; unexpected: " + c10::Join(", ", unexpected);
  if (!mismatched.empty()) problems += "; of another shape: " + c10::Join(", ", mismatched);
  TORCH_CHECK_VALUE(problems.empty(), "[tensorion.load_weights] ", source, " does not fit the model",
                    problems);
  return new_head;
}

std::vector<std::string> load_state_dict(Classifier& model, const NamedTensors& tensors,
                                         const std::string& source) {
  const bool new_head = check_state_dict(model, tensors, source);
  const std::string weight = model.head_name() + ".weight";
  const std::string bias = model.head_name() + ".bias";
  auto own = state_dict(model);
  const torch::NoGradGuard no_grad;
  for (auto& [name, tensor] : own) {
    if (new_head && (name == weight || name == bias)) continue;
    tensor.copy_(tensors.at(name));
  }
  if (!new_head) return {};
  model.reset_head();
  return {weight, bias};
}

std::vector<std::string> load_weights(Classifier& model, const std::string& path) {
  return load_state_dict(model, read_safetensors(path).tensors, path);
}

}  // namespace tensorion::lab
