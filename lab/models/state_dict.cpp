#include "lab/models/state_dict.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>
#include <torch/types.h>

#include <algorithm>
#include <string_view>

#include "lab/models/models.h"

namespace tensorion::lab {
namespace {

// Buffers that our models compute instead of loading, but that some files contain.
bool is_computed(std::string_view name) {
  return name.ends_with(".relative_position_index") || name.ends_with(".attn_mask");
}

// Returns true if only the first size differs, as for a head with a different number of classes.
bool differs_in_classes(const at::Tensor& stored, const at::Tensor& own) {
  return stored.dim() == own.dim() && stored.size(0) != own.size(0) &&
         stored.sizes().slice(1) == own.sizes().slice(1);
}

// The counter of batch norm updates, which is missing in old files. Our models do not use its value.
bool is_counter(std::string_view name) { return name.ends_with(".num_batches_tracked"); }

// Example: "; 102 with a different shape: conv1.weight: expected [64], got [16], ..."
std::string summary(const std::vector<std::string>& names, const std::string& what) {
  constexpr size_t kShown = 3;
  if (names.empty()) return "";
  const std::vector<std::string> first(names.begin(), names.begin() + std::min(kShown, names.size()));
  return c10::str("; ", names.size(), " ", what, ": ", c10::Join(", ", first),
                  names.size() > kShown ? ", ..." : "");
}

// Example: "; the file looks like --model resnet34 --width 0.25 --stem cifar"
std::string hint(const NamedTensors& tensors) {
  const auto flags = recognize_model(tensors);
  return flags.empty() ? "" : "; the file looks like " + flags;
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
  const bool has_head = stored_weight != tensors.end() || stored_bias != tensors.end();
  const bool fits_but_classes = stored_weight != tensors.end() && stored_bias != tensors.end() &&
                                differs_in_classes(stored_weight->second, own.at(weight)) &&
                                differs_in_classes(stored_bias->second, own.at(bias));
  const bool new_head = !has_head || fits_but_classes;

  std::vector<std::string> missing, unexpected, mismatched;
  for (const auto& [name, tensor] : own) {
    const auto stored = tensors.find(name);
    const bool is_new = new_head && (name == weight || name == bias);
    if (stored == tensors.end()) {
      if (!is_new && !is_counter(name)) missing.push_back(name);
    } else if (stored->second.sizes() != tensor.sizes() && !is_new) {
      mismatched.push_back(c10::str(name, ": expected ", tensor.sizes(), ", got ", stored->second.sizes()));
    }
  }
  for (const auto& [name, tensor] : tensors) {
    if (!own.contains(name) && !is_computed(name)) unexpected.push_back(name);
  }
  const auto problems = summary(missing, "missing") + summary(unexpected, "unexpected") +
                        summary(mismatched, "with a different shape");
  TORCH_CHECK_VALUE(problems.empty(), "[tensorion.load_weights] ", source, " does not match the model",
                    problems, problems.empty() ? "" : hint(tensors));
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
    if (const auto stored = tensors.find(name); stored != tensors.end()) tensor.copy_(stored->second);
  }
  if (!new_head) return {};
  model.reset_head();
  return {weight, bias};
}

SafeTensors read_weights(const std::string& path) {
  for (const char* ending : {".pt", ".pth", ".bin", ".ckpt", ".pkl"}) {
    TORCH_CHECK_VALUE(!path.ends_with(ending), "[tensorion.load_weights] ", path,
                      " looks like a file of torch.save; expected a safetensors file. Convert it in Python: "
                      "safetensors.torch.save_file(torch.load('",
                      path, "', weights_only=True), 'weights.safetensors')");
  }
  return read_safetensors(path);
}

std::vector<std::string> load_weights(Classifier& model, const std::string& path) {
  return load_state_dict(model, read_weights(path).tensors, path);
}

}  // namespace tensorion::lab
