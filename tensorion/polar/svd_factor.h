// Exact polar factors by a singular value decomposition in double precision.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "tensorion/polar/polar_factor.h"

namespace tensorion {

// U V^T of the compact SVD of each matrix of a batch.
struct SvdFactors {
  at::Tensor x;        // in the dtype of the input
  at::Tensor product;  // <A, X>, each
  at::Tensor noise;    // the sum of the singular values that were left out
};

// Directions whose singular value is no larger than the rounding of A's own entries are left out.
SvdFactors svd_factors(const at::Tensor& a);

// True if the matrices are so small that a decomposition takes no longer than the calls of a rational filter
// do: 16 x 16 takes 130 us either way, and 40 us in a batch.
inline bool is_tiny(const at::Tensor& a) { return std::max(a.size(-2), a.size(-1)) <= 16; }

// That of one matrix.
PolarFactor svd_factor(const at::Tensor& a);

}  // namespace tensorion
