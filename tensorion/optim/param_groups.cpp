#include "tensorion/param_groups.h"

#include <c10/util/StringUtil.h>
#include <fnmatch.h>
#include <torch/nn/modules/conv.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "tensorion/unfolding.h"

namespace tensorion {
namespace {

using torch::optim::OptimizerParamGroup;
using Pattern = ParamGroupRules::Pattern;

// A parameter, and everywhere it is used: one that is tied has several names.
struct Use {
  at::Tensor param;
  std::vector<std::string> names;
  int64_t channel_groups = 1;  // of the convolution whose kernel it is
  bool is_depthwise = false;
};

template <typename Convolution>
bool read_convolution(const torch::nn::Module& module, const at::Tensor& param, Use& use) {
  const auto* convolution = dynamic_cast<const Convolution*>(&module);
  if (convolution == nullptr || !param.is_same(convolution->weight)) return false;
  use.channel_groups = convolution->options.groups();
  use.is_depthwise = use.channel_groups > 1 && use.channel_groups == convolution->options.in_channels();
  return true;
}

std::vector<Use> uses_of(const torch::nn::Module& root) {
  std::vector<Use> uses;
  std::map<const void*, size_t> places;
  for (const auto& entry : root.named_modules("", /*include_self=*/true)) {
    const auto& module = *entry.value();
    for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
      const auto [place, is_new] = places.try_emplace(parameter.value().unsafeGetTensorImpl(), uses.size());
      if (is_new) uses.push_back({parameter.value(), {}});
      auto& use = uses[place->second];
      use.names.push_back(entry.key().empty() ? parameter.key() : entry.key() + "." + parameter.key());
      const auto& param = parameter.value();
      read_convolution<torch::nn::Conv1dImpl>(module, param, use) ||
          read_convolution<torch::nn::Conv2dImpl>(module, param, use) ||
          read_convolution<torch::nn::Conv3dImpl>(module, param, use) ||
          read_convolution<torch::nn::ConvTranspose1dImpl>(module, param, use) ||
          read_convolution<torch::nn::ConvTranspose2dImpl>(module, param, use) ||
          read_convolution<torch::nn::ConvTranspose3dImpl>(module, param, use);
    }
  }
  return uses;
}

// Whether a pattern fits a name of the parameter, or that of a module it is in.
bool fits(const std::string& pattern, const Use& use) {
  for (const auto& name : use.names) {
    for (size_t end = name.find('.'); end != std::string::npos; end = name.find('.', end + 1)) {
      if (fnmatch(pattern.c_str(), name.substr(0, end).c_str(), 0) == 0) return true;
    }
    if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
  }
  return false;
}

void check_pattern(const std::string& pattern, const char* rule, const std::vector<Use>& uses) {
  TORCH_CHECK_VALUE(std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return fits(pattern, use); }),
                    "[tensorion.param_groups] '", pattern, "' in ", rule, " fits no parameter of the module");
}

std::vector<int64_t> first_fit(const std::vector<Pattern>& patterns, const Use& use) {
  for (const auto& [pattern, value] : patterns) {
    if (fits(pattern, use)) return value;
  }
  return {};
}

// The shape whose order counts.
std::vector<int64_t> counted_shape(const at::Tensor& param, const ParamGroupRules& rules) {
  auto shape = param.sizes().vec();
  if (!rules.pointwise()) std::erase(shape, 1);
  return shape;
}

// The options of the group that the parameter belongs to, but for the weight decay.
TensorionOptions options_for(const Use& use, const ParamGroupRules& rules, TensorionOptions options) {
  const auto fallback = [&] {
    TORCH_CHECK_VALUE(options.fallback(), "[tensorion.param_groups] '", use.names[0],
                      "' is not Tensorion's, and there is no fallback");
    auto own = TensorionOptions(options).algorithm(*options.fallback());
    own.lr(options.fallback_lr().value_or(options.lr()));
    own.weight_decay(options.fallback_weight_decay().value_or(options.weight_decay()));
    return own.algorithm() == "sgd" ? own.momentum(options.fallback_momentum()) : own;
  };
  const auto shape = use.param.sizes();
  const bool is_named = std::any_of(rules.to_fallback().begin(), rules.to_fallback().end(),
                                    [&](const std::string& pattern) { return fits(pattern, use); });
  if (is_named || (use.is_depthwise && !rules.depthwise())) return fallback();
  options.algorithm("tensorion");
  auto sliced = TensorionOptions(options)
                    .batch_modes(first_fit(rules.batch(), use))
                    .split_sizes(first_fit(rules.split(), use));
  if (!sliced.batch_modes().empty() || !sliced.split_sizes().empty()) {
    try {
      sliced.check();
      return fallback_reason(shape, sliced).empty() ? sliced : fallback();
    } catch (const c10::ValueError& error) {
      TORCH_CHECK_VALUE(false, "[tensorion.param_groups] batch or split does not fit '", use.names[0],
                        "', shape ", shape, ": ", error.what_without_backtrace());
    }
  }
  if (!fallback_reason(counted_shape(use.param, rules), options).empty()) return fallback();
  if (use.channel_groups > 1 && !use.is_depthwise) {
    sliced.split_sizes({use.channel_groups});
    if (fallback_reason(shape, sliced).empty()) return sliced;
  }
  return options;
}

}  // namespace

std::string fallback_reason(at::IntArrayRef shape, const TensorionOptions& options) {
  const Slicing slicing{options.batch_modes(), options.split_sizes()};
  if (!slicing.is_whole()) {
    const auto blocks = slicing.block_shapes(shape);
    return std::all_of(blocks.begin(), blocks.end(), [](const auto& b) { return effective_order(b) > 1; })
               ? ""
               : "one mode > 1";
  }
  if (parameter_order(shape) < options.min_order()) return c10::str("order < ", options.min_order());
  return effective_order(shape) < 2 ? "one mode > 1" : "";
}

std::vector<OptimizerParamGroup> param_groups(const torch::nn::Module& module, const ParamGroupRules& rules,
                                              const TensorionOptions& options) {
  options.check();
  const auto uses = uses_of(module);
  for (const auto& pattern : rules.to_fallback()) check_pattern(pattern, "to_fallback", uses);
  for (const auto& rule : rules.batch()) check_pattern(rule.first, "batch", uses);
  for (const auto& rule : rules.split()) check_pattern(rule.first, "split", uses);
  struct Group {
    std::vector<at::Tensor> params;
    TensorionOptions options;
  };
  using Key = std::tuple<std::string, Modes, std::vector<int64_t>, bool>;
  std::vector<Group> groups;
  std::map<Key, size_t> places;
  for (const auto& use : uses) {
    auto own = options_for(use, rules, options);
    const bool decays = rules.decay_vectors() || effective_order(use.param.sizes()) > 1;
    if (!decays) own.weight_decay(0);
    const Key key{own.algorithm(), own.batch_modes(), own.split_sizes(), decays};
    const auto [place, is_new] = places.try_emplace(key, groups.size());
    if (is_new) groups.push_back({{}, own});
    groups[place->second].params.push_back(use.param);
  }
  std::stable_partition(groups.begin(), groups.end(),
                        [](const Group& group) { return group.options.algorithm() == "tensorion"; });
  std::vector<OptimizerParamGroup> found;
  for (auto& group : groups) found.push_back(param_group(std::move(group.params), std::move(group.options)));
  return found;
}

}  // namespace tensorion
