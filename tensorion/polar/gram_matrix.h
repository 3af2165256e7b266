// The Gram matrix A A^T of a matrix A (m x n, m <= n), bounds of its spectrum and of ||A||_*, and inverses
// and determinants of A A^T + c lambda I.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "tensorion/polar/spectrum_moments.h"

namespace tensorion {

// The inverse of matrix + c lambda I.
struct ShiftedInverse {
  at::Tensor lower;  // its lower triangle, in scratch memory
  double log_det;    // log det(I + matrix / (c lambda)): the sum of log(1 + s / c) over the eigenvalues s of
                     // matrix / lambda
};

// The Gram matrix, and bounds that follow from its trace and its Frobenius norm.
//
// The computed matrix is A A^T + E, where E includes the backward error of later Cholesky factorizations. The
// norms of E are bounded a priori in double precision. In single precision they are estimated from a sample
// of rows, so all bounds that depend on them hold up to this estimate.
struct GramMatrix {
  at::Tensor matrix;  // only the lower triangle is defined
  double trace = 0;
  double squares = 0;            // ||A A^T||_F^2
  double rounding = 0;           // upper bound (fp64) or estimate (fp32) of ||E||_F
  double spectral_rounding = 0;  // upper bound (fp64) or estimate (fp32) of ||E||_2
  double lambda = 0;             // upper bound of the largest eigenvalue
  double nuclear_upper = 0;      // upper bound of ||A||_*
  double upper_rounding = 0;     // the part of nuclear_upper that allows for E

  // Computes A A^T for a finite matrix `a` in fp32 or fp64 with m <= n. Its squared norm must not overflow or
  // underflow (see kModerateSquares).
  explicit GramMatrix(const at::Tensor& a);

  // Returns the Gram matrix of another unfolding of the same tensor, whose row modes are a subset of the row
  // modes of A. It is the partial trace of this matrix over the other row modes. `sizes` are the sizes of the
  // row modes of A; kept[i] is true if mode i is in the subset.
  GramMatrix partial_trace(at::IntArrayRef sizes, const std::vector<bool>& kept) const;

  // Returns an upper bound of the ratio of (A A^T + c lambda I)^-1 to (matrix + c lambda I)^-1. It assumes
  // that ||E||_2 is at most `error`, and that the eigenvalues of `matrix` are at least min_eigenvalue lambda.
  // Returns nullopt if the bound exceeds 2: the precision of the Gram matrix does not resolve the shift c.
  std::optional<double> inverse_growth(double c, double error, double min_eigenvalue) const;

  // Replaces the matrix by matrix - a b^T - b a^T, which must be the Gram matrix of another matrix. The
  // memory of the matrix is overwritten.
  void subtract(const at::Tensor& a, const at::Tensor& b);

  // Inverts matrix + c lambda I. Returns nullopt if it is not numerically positive definite.
  std::optional<ShiftedInverse> inverse(double c) const;
  // Returns the same determinant for a third of the cost.
  std::optional<double> log_det(double c) const;

  // Returns the moments of the spectrum of matrix / lambda, without shifts.
  SpectrumMoments moments() const;

 private:
  GramMatrix() = default;
  at::Tensor shifted(double c) const;
  double relative_log_det(double log_det, double c) const;
  void set_moments();
  void set_bounds();
};

}  // namespace tensorion
