// Checks for NaN and infinity, and the clamp for sums that overflow.
#pragma once

#include <ATen/core/Tensor.h>

namespace tensorion {

// Clamps infinite elements to the largest finite number of the same sign. The tensors have one dtype.
void clamp_overflow_(at::TensorList tensors);

// Returns true if all elements of a tensor on the CPU are finite.
bool is_finite(const at::Tensor& x);

}  // namespace tensorion
