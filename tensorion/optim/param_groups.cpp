#include "tensorion/param_groups.h"

#include <c10/util/StringUtil.h>

#include "tensorion/unfolding.h"

namespace tensorion {

std::string fallback_reason(at::IntArrayRef shape, const TensorionOptions& options) {
  if (parameter_order(shape) < options.min_order()) return c10::str("order < ", options.min_order());
  return effective_order(shape) < 2 ? "one mode > 1" : "";
}

}  // namespace tensorion
