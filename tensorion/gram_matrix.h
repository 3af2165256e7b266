// The Gram matrix A A^T of a matrix whose nuclear norm or polar factor is wanted, and its shifted Cholesky
// factors.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <vector>

namespace tensorion {

// lower <= ||A||_* <= upper.
struct NuclearBounds {
  double lower = 0;
  double upper = 0;
};

// The Cholesky factor of matrix + c lambda I, by its lower triangle, and the log-determinant of that matrix
// over c lambda: the sum of log(1 + s/c) over the spectrum of matrix / lambda.
struct ShiftedFactor {
  at::Tensor lower;
  double log_det;
};

// The lower triangle of A A^T and what its trace and Frobenius norm alone tell.
struct GramMatrix {
  at::Tensor matrix;
  double trace = 0;
  double squares = 0;        // ||A A^T||_F^2
  double rounding = 0;       // >= ||A A^T - matrix||_F, and what factorizations add to it
  double lambda = 0;         // >= the largest eigenvalue
  double nuclear_upper = 0;  // >= ||A||_*

  // `a`: m <= n, fp32 or fp64, finite, entries of moderate size.
  explicit GramMatrix(const at::Tensor& a);

  // That of an unfolding whose row modes are some of those of A's rows: the partial trace over the others.
  // `sizes`: of A's row modes.
  GramMatrix partial_trace(at::IntArrayRef sizes, const std::vector<bool>& kept) const;

  // In scratch memory. Nothing where matrix + c lambda I is not positive definite.
  std::optional<ShiftedFactor> factor(double c) const;

  std::map<double, ShiftedFactor> factors;  // by c: those kept for a pass, which inverts them

 private:
  GramMatrix() = default;
  void set_moments();
  void set_bounds();
};

}  // namespace tensorion
