// The Gram matrix A A^T of a matrix whose nuclear norm or polar factor is wanted, and its shifted Cholesky
// factors.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <vector>

#include "tensorion/polar/spectrum_moments.h"

namespace tensorion {

// The Cholesky factor of matrix + c lambda I, by its lower triangle, and the log-determinant of that matrix
// over c lambda: the sum of log(1 + s/c) over the spectrum of matrix / lambda.
struct ShiftedFactor {
  at::Tensor lower;
  double log_det;
};

// Factors at poles of the rational filter, which inverts them, by the index of the pole.
using PoleFactors = std::map<size_t, ShiftedFactor>;

// The lower triangle of A A^T, and bounds that follow from its trace and Frobenius norm.
//
// `matrix` differs from A A^T by an error E, to which factorizations of it add their own. In double precision
// the norms of E are bounded; in single precision they are estimated by a sample of rows.
struct GramMatrix {
  at::Tensor matrix;
  double trace = 0;
  double squares = 0;            // ||A A^T||_F^2
  double rounding = 0;           // estimate of ||E||_F from above
  double spectral_rounding = 0;  // estimate of ||E||_2 from above
  double lambda = 0;             // >= the largest eigenvalue
  double nuclear_upper = 0;      // >= ||A||_*
  double upper_rounding = 0;     // what rounding has added to it

  // `a`: m <= n, fp32 or fp64, finite, entries of moderate size.
  explicit GramMatrix(const at::Tensor& a);

  // The Gram matrix of an unfolding whose row modes are a subset of those of A: the partial trace over the
  // others. `sizes` are the sizes of A's row modes; `kept` says which of them remain.
  GramMatrix partial_trace(at::IntArrayRef sizes, const std::vector<bool>& kept) const;

  // How much larger the inverse of A A^T + c lambda I can be than that of matrix + c lambda I, if they differ
  // by an error of this spectral norm and the smallest eigenvalue of `matrix` is at least `least` lambda.
  // Nothing if that is more than a factor of two: c is then below the resolution of the Gram matrix.
  std::optional<double> inverse_growth(double c, double error, double least) const;

  // The result lies in scratch memory. Nothing is returned if matrix + c lambda I is not positive definite.
  std::optional<ShiftedFactor> factor(double c) const;

  // Of the spectrum of matrix / lambda, without shifts.
  SpectrumMoments moments() const;

 private:
  GramMatrix() = default;
  void set_moments();
  void set_bounds();
};

}  // namespace tensorion
