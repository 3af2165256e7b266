// Numbers that are not finite.
#pragma once

#include <ATen/core/Tensor.h>

namespace tensorion {

// The largest finite number of the dtype.
double largest_finite(at::ScalarType dtype);

// Of a tensor on the CPU.
bool is_finite(const at::Tensor& x);

}  // namespace tensorion
