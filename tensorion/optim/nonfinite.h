// Checks for NaN and infinity.
#pragma once

#include <ATen/core/Tensor.h>

namespace tensorion {

// Returns the largest finite number of a floating-point dtype.
double largest_finite(at::ScalarType dtype);

// Returns true if all elements of a tensor on the CPU are finite.
bool is_finite(const at::Tensor& x);

}  // namespace tensorion
