// The options of the parameters that go to the fallback. `fallback_reason` (param_groups.h) decides which
// ones do.
#pragma once

#include "tensorion/optimizer.h"

namespace tensorion {

// Returns the options of a fallback group: `algorithm` is options.fallback(), and lr, weight_decay and
// momentum are those of the fallback. Throws if the options have no fallback.
TensorionOptions fallback_options(TensorionOptions options);

}  // namespace tensorion
