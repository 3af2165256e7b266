// Reduces the few large singular values of a matrix, so that a rational filter needs fewer poles.
//
// In training, the largest singular value of a momentum is 10 to 150 times the median. Let the columns of V
// (m x k) be orthonormal and close to the k dominant left singular vectors of A, and let
//   D = I - V G V^T,   G = diag(g_1, ..., g_k),   0 <= g_i < 1.
// With suitable g_i, the k largest singular values of D A are nearly equal. D A has nearly the same polar
// factor as A, because D nearly commutes with A A^T, and the filter is applied to D A. For all V and G,
//   <A, X> = <D A, X> + <A - D A, X>   and   ||A||_* <= ||D A||_* + ||A - D A||_*,
// so the quality of the result is certified even if V is not accurate.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "tensorion/polar/gram_matrix.h"

namespace tensorion {

class Deflation {
 public:
  // Replaces the Gram matrix of A by that of D A and overwrites its memory. Returns nullopt, and changes
  // nothing, if the filter would not need fewer poles for D A or if V cannot be computed.
  static std::optional<Deflation> apply(GramMatrix& gram);

  // Returns an upper bound of ||A - D A||_*.
  double removed_norm() const { return removed_norm_; }

  // Replaces the symmetric matrix Q, for which X = Q D A, by Q D. Returns a lower bound of <A - D A, X>.
  double undo(at::Tensor& q) const;

 private:
  Deflation() = default;

  // The columns of V are Ritz vectors: V^T A A^T V is diagonal.
  at::Tensor basis_;       // V
  at::Tensor reductions_;  // the diagonal of G in double precision
  at::Tensor image_;       // D A A^T V in double precision
  double removed_norm_ = 0;
  double spectral_rounding_ = 0;  // of the Gram matrix of A
};

}  // namespace tensorion
