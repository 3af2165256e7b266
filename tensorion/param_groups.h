// Which parameters Tensorion updates, and which the fallback.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "tensorion/optimizer.h"

namespace tensorion {

// Why the fallback updates parameters of this shape: "order < 3" if their order (parameter_order) is below
// options.min_order(), "one mode > 1" if fewer than two modes are larger than 1, as in a layer scale of 64 x
// 1 x 1. Empty if Tensorion updates them.
std::string fallback_reason(at::IntArrayRef shape, const TensorionOptions& options = {});

}  // namespace tensorion
