// The direction of a step: the answer of the oracle without its certificate. Internal: it may lie in scratch
// memory.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensorion/lmo.h"

namespace tensorion {

struct Direction {
  at::Tensor x;
  Unfolding unfolding;
};
Direction lmo_direction(const at::Tensor& m, const UnfoldingStrategy& unfolding, const PolarOptions& polar);

}  // namespace tensorion
