// The rounding error of a computed Gram matrix.
#pragma once

#include <ATen/core/Tensor.h>

namespace tensorion {

// Norms of the error E = s - a a^T, divided by tr s.
struct GramRounding {
  double frobenius;
  double spectral;
};

// Bounds (fp64) or estimates (fp32) the norms of E for a matrix `a` on the CPU and the lower triangle s of
// its computed Gram matrix.
GramRounding gram_rounding(const at::Tensor& a, const at::Tensor& s);

}  // namespace tensorion
