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
// Of a tensor on the CPU.
Direction lmo_direction(const at::Tensor& m, const UnfoldingStrategy& unfolding, const PolarOptions& polar);

// Where an unfolding or its transpose stands in the list `unfoldings(shape)`, and the unfolding that stands
// there. Shapes that have no list have number 0.
int64_t unfolding_number(const Unfolding& unfolding);
Unfolding numbered_unfolding(at::IntArrayRef shape, int64_t number);

}  // namespace tensorion
