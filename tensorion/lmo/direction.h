// The direction of a step, X = fold(polar(unfold(M))): the solution of the linear minimization oracle without
// its bounds. It may be in scratch memory.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensorion/lmo.h"

namespace tensorion {

struct Direction {
  at::Tensor x;
  Unfolding unfolding;  // the unfolding of which x is the polar factor
};

// Returns the direction for a finite tensor on the CPU.
Direction lmo_direction(const at::Tensor& m, const UnfoldingStrategy& unfolding, const PolarOptions& polar);

// Converts between an unfolding and its index in the list `unfoldings(shape)`. An unfolding and its transpose
// have the same index. If the list is empty, as for vectors, the only index is 0. `unfolding_at` throws if
// the index is out of range.
int64_t unfolding_index(const Unfolding& unfolding);
Unfolding unfolding_at(at::IntArrayRef shape, int64_t index);

}  // namespace tensorion
