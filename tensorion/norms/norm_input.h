// Checks the input of a norm and scales it so that squares neither overflow nor underflow. Scales are powers
// of two, so scaling is exact.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tensorion/norms.h"

namespace tensorion {

// Returns the exponent e with 2^(e-1) <= max |x| < 2^e, or 0 if x is zero or empty. Throws if x is not a
// dense, real, floating-point, finite tensor. `name` is the name of the calling function in the error
// message.
int checked_exponent(const at::Tensor& x, const char* name);

// The input without its modes of size 1 is 2^exponent * values.
struct NormInput {
  at::Tensor values;  // contiguous, in double precision, on the CPU, with magnitudes of at most 1
  int exponent;
};
// Throws as checked_exponent does.
NormInput norm_input(const at::Tensor& x, const char* name);

// Converts bounds of the norm of input.values to bounds of the norm of the input. They are widened by an
// upper bound of the rounding errors.
NormBounds norm_bounds(const NormInput& input, double lower, double upper);

}  // namespace tensorion
