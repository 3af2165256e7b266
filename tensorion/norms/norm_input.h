// The input of a norm: checked, and scaled so that no square overflows or
// underflows. Scales are powers of two, so scaling is exact. Internal to norms.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tensorion/norms.h"

namespace tensorion {

// Throws, in the name of the function `name`, unless x is real, floating point
// and finite. Else the exponent e with 2^(e-1) <= max |x| < 2^e; 0 if x is 0.
int checked_exponent(const at::Tensor& x, const char* name);

// 2^exponent * values is the input, its modes of size 1 dropped; values are
// contiguous, in double and on the CPU, and at most 1.
struct NormInput {
  at::Tensor values;
  int exponent;
};
NormInput norm_input(const at::Tensor& x, const char* name);

// Bounds of the input's norm from those computed for its values, widened by
// more than rounding in double can have moved them.
NormBounds norm_bounds(const NormInput& input, double lower, double upper);

}  // namespace tensorion
