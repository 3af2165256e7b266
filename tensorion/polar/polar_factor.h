// The polar factor of one matrix with what is known of it. Internal: results may lie in scratch memory, and
// must be copied to be kept.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "tensorion/polar.h"
#include "tensorion/polar/spectrum_moments.h"

namespace tensorion {

struct PolarFactor {
  at::Tensor x;
  double value = 0;  // <A, X> / max(1, bound of ||X||_2): attained by a matrix of spectral norm at most 1
  NuclearBounds nuclear;  // of A
};

// Throws unless `a` is a real, floating-point, dense tensor of shape (..., m, n).
void check_polar_input(const at::Tensor& a);

// The dtype that numbers of tensors like `a` are computed in: single precision, or that of `a` if it is
// double.
at::ScalarType compute_type(const at::Tensor& a);

// max |a|. Throws unless it is finite.
double largest_entry(const at::Tensor& a);

// The method that "auto" stands for on the device of `a`; any other method is returned as it is.
std::string resolve_polar_method(const std::string& method, const at::Tensor& a);

PolarFactor certified_polar(const at::Tensor& a, const PolarOptions& options = {});

// The factor alone.
at::Tensor polar_scratch(const at::Tensor& a, const PolarOptions& options);

}  // namespace tensorion
