#include "tensorion/optim/fallback_rule.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "tensorion/param_groups.h"
#include "tensorion/unfolding.h"

namespace tensorion {

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

TensorionOptions fallback_options(TensorionOptions options) {
  options.algorithm(options.fallback().value());
  options.lr(options.fallback_lr().value_or(options.lr()));
  options.weight_decay(options.fallback_weight_decay().value_or(options.weight_decay()));
  if (options.algorithm() == "sgd") options.momentum(options.fallback_momentum());
  return options;
}

}  // namespace tensorion
