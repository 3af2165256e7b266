#include "tensorion/param_groups.h"

#include <c10/util/StringUtil.h>
#include <fnmatch.h>
#include <torch/nn/modules/conv.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "tensorion/optim/fallback_rule.h"
#include "tensorion/unfolding.h"

namespace tensorion {
namespace {

using torch::optim::OptimizerParamGroup;
using Pattern = ParamGroupRules::Pattern;

// A parameter of a module.
struct NamedParam {
  at::Tensor param;
  std::vector<std::string> names;  // several if the parameter is tied
  int64_t channel_groups = 1;      // groups of the convolution, if the parameter is a kernel
  bool is_depthwise = false;
};

// If the parameter is the kernel of a convolution of this type, reads the options of the convolution and
// returns true.
template <typename Convolution>
bool read_convolution(const torch::nn::Module& module, const at::Tensor& param, NamedParam& named) {
  const auto* convolution = dynamic_cast<const Convolution*>(&module);
  if (convolution == nullptr || !param.is_same(convolution->weight)) return false;
  named.channel_groups = convolution->options.groups();
  named.is_depthwise = named.channel_groups > 1 && named.channel_groups == convolution->options.in_channels();
  return true;
}

// Returns the parameters of a module and of its submodules. A tied parameter is listed once.
std::vector<NamedParam> collect_params(const torch::nn::Module& root) {
  std::vector<NamedParam> params;
  std::map<const void*, size_t> indices;
  for (const auto& entry : root.named_modules("", /*include_self=*/true)) {
    const auto& module = *entry.value();
    for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
      const auto [index, is_new] =
          indices.try_emplace(parameter.value().unsafeGetTensorImpl(), params.size());
      if (is_new) params.push_back({parameter.value(), {}});
      auto& named = params[index->second];
      named.names.push_back(entry.key().empty() ? parameter.key() : entry.key() + "." + parameter.key());
      const auto& param = parameter.value();
      read_convolution<torch::nn::Conv1dImpl>(module, param, named) ||
          read_convolution<torch::nn::Conv2dImpl>(module, param, named) ||
          read_convolution<torch::nn::Conv3dImpl>(module, param, named) ||
          read_convolution<torch::nn::ConvTranspose1dImpl>(module, param, named) ||
          read_convolution<torch::nn::ConvTranspose2dImpl>(module, param, named) ||
          read_convolution<torch::nn::ConvTranspose3dImpl>(module, param, named);
    }
  }
  return params;
}

// Returns true if the pattern matches a name of the parameter or of a module that contains it.
bool matches(const std::string& pattern, const NamedParam& named) {
  for (const auto& name : named.names) {
    for (size_t end = name.find('.'); end != std::string::npos; end = name.find('.', end + 1)) {
      if (fnmatch(pattern.c_str(), name.substr(0, end).c_str(), 0) == 0) return true;
    }
    if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
  }
  return false;
}

// Throws if the pattern matches no parameter. `rule` is the name of its rule.
void check_pattern(const std::string& pattern, const char* rule, const std::vector<NamedParam>& params) {
  TORCH_CHECK_VALUE(std::any_of(params.begin(), params.end(),
                                [&](const NamedParam& named) { return matches(pattern, named); }),
                    "[tensorion.param_groups] '", pattern, "' in ", rule,
                    " matches no parameter of the module");
}

// Returns the value of the first pattern that matches, or an empty list.
std::vector<int64_t> first_match(const std::vector<Pattern>& patterns, const NamedParam& named) {
  for (const auto& [pattern, value] : patterns) {
    if (matches(pattern, named)) return value;
  }
  return {};
}

// Returns the shape that fallback_reason is applied to.
std::vector<int64_t> shape_for_order(const at::Tensor& param, const ParamGroupRules& rules) {
  auto shape = param.sizes().vec();
  if (!rules.pointwise()) std::erase(shape, 1);
  return shape;
}

// Returns the options of the group of a parameter. The rule decay_vectors is applied later.
TensorionOptions options_for(const NamedParam& named, const ParamGroupRules& rules,
                             TensorionOptions options) {
  const auto fallback = [&] {
    TORCH_CHECK_VALUE(options.fallback(), "[tensorion.param_groups] '", named.names[0],
                      "' needs a fallback, got none");
    return fallback_options(options);
  };
  const auto shape = named.param.sizes();
  const bool is_named = std::any_of(rules.to_fallback().begin(), rules.to_fallback().end(),
                                    [&](const std::string& pattern) { return matches(pattern, named); });
  if (is_named || (named.is_depthwise && !rules.depthwise())) return fallback();
  options.algorithm("tensorion");
  auto sliced = TensorionOptions(options)
                    .batch_modes(first_match(rules.batch(), named))
                    .split_sizes(first_match(rules.split(), named));
  if (!sliced.batch_modes().empty() || !sliced.split_sizes().empty()) {
    try {
      sliced.check();
      return fallback_reason(shape, sliced).empty() ? sliced : fallback();
    } catch (const c10::ValueError& error) {
      TORCH_CHECK_VALUE(false, "[tensorion.param_groups] batch or split does not fit '", named.names[0],
                        "', shape ", shape, ": ", error.what_without_backtrace());
    }
  }
  if (!fallback_reason(shape_for_order(named.param, rules), options).empty()) return fallback();
  if (named.channel_groups > 1 && !named.is_depthwise) {
    sliced.split_sizes({named.channel_groups});
    if (fallback_reason(shape, sliced).empty()) return sliced;
  }
  return options;
}

}  // namespace

std::vector<OptimizerParamGroup> param_groups(const torch::nn::Module& module, const ParamGroupRules& rules,
                                              const TensorionOptions& options) {
  options.check();
  const auto params = collect_params(module);
  for (const auto& pattern : rules.to_fallback()) check_pattern(pattern, "to_fallback", params);
  for (const auto& rule : rules.batch()) check_pattern(rule.first, "batch", params);
  for (const auto& rule : rules.split()) check_pattern(rule.first, "split", params);
  // Parameters with the same algorithm, slices and weight decay form a group.
  struct Group {
    std::vector<at::Tensor> params;
    TensorionOptions options;
  };
  using Key = std::tuple<std::string, Modes, std::vector<int64_t>, bool>;
  std::vector<Group> groups;
  std::map<Key, size_t> indices;
  for (const auto& named : params) {
    auto own = options_for(named, rules, options);
    const bool decays = rules.decay_vectors() || effective_order(named.param.sizes()) > 1;
    if (!decays) own.weight_decay(0);
    const Key key{own.algorithm(), own.batch_modes(), own.split_sizes(), decays};
    const auto [index, is_new] = indices.try_emplace(key, groups.size());
    if (is_new) groups.push_back({{}, own});
    groups[index->second].params.push_back(named.param);
  }
  std::stable_partition(groups.begin(), groups.end(),
                        [](const Group& group) { return group.options.algorithm() == "tensorion"; });
  std::vector<OptimizerParamGroup> found;
  for (auto& group : groups) found.push_back(param_group(std::move(group.params), std::move(group.options)));
  return found;
}

}  // namespace tensorion
