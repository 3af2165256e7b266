// The polar factor X of a matrix A, with a lower bound of <A, X> and bounds of ||A||_*. Results may be in
// scratch memory, so they must be copied before they are returned to the user.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "tensorion/polar.h"
#include "tensorion/polar/spectrum_moments.h"

namespace tensorion {

struct PolarFactor {
  at::Tensor x;
  double value = 0;       // lower bound of <A, X>, divided by a bound of ||X||_2 if that exceeds 1
  NuclearBounds nuclear;  // of A
};

// Throws unless `a` is a real, floating-point, dense tensor of shape (..., m, n).
void check_polar_input(const at::Tensor& a);

// Returns the dtype of computations with `a`: fp64 if `a` is fp64, else fp32.
at::ScalarType compute_type(const at::Tensor& a);

// Returns max |a|. Throws if `a` contains NaN or infinity.
double largest_entry(const at::Tensor& a);

// Replaces "auto" by the default method for the device of `a`. Returns other methods unchanged.
std::string resolve_polar_method(const std::string& method, const at::Tensor& a);

// Returns the polar factor of a single matrix with its bounds.
PolarFactor certified_polar(const at::Tensor& a, const PolarOptions& options = {});

// Returns the polar factors only, without the check of the options. `a` may be a batch if the method is
// "newton_schulz".
at::Tensor polar_scratch(const at::Tensor& a, const PolarOptions& options);

}  // namespace tensorion
