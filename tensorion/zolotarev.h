// One rational pass towards the polar factor, with a certificate.
//
// For A (m x n, m <= n) and S = A A^T / lambda, lambda >= the largest eigenvalue of A A^T, the pass is
//   X = Q A,  Q = (alpha I + sum_j beta_j (S + c_j I)^-1) / sqrt(lambda):
// Zolotarev's best rational approximation of the sign of the singular values. With four poles it equals two
// dynamically weighted Halley steps, but needs no products between them. Singular values of A above
// `resolution` land in [floor, 1], smaller ones below, and none exceeds 1.
//
// The inverses give away traces (of themselves, of their squares, and their log-determinants) that bound the
// nuclear norm of A from both sides: see scripts/make_zolotarev_tables.py.
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>
#include <optional>
#include <vector>

namespace tensorion {

// lower <= ||A||_* <= upper.
struct NuclearBounds {
  double lower = 0;
  double upper = 0;
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
};

class ZolotarevPass {
 public:
  enum class Accuracy {
    light,   // three poles: resolution 8e-3, floor 0.959, nuclear norm certified to about 0.5 %
    coarse,  // a fourth one: resolution 1e-3, floor 0.963, nuclear norm certified to about 0.1 %
    fine,    // six poles: resolution 1e-3, floor 0.9965, no certificate
  };

  // A light pass or a fine one; nothing is returned where a factorization fails.
  static std::optional<ZolotarevPass> solve(const GramMatrix& gram, Accuracy accuracy);

  // Makes a coarse pass of a light one by one more inverse, in the memory of the Gram matrix. Returns false,
  // and the pass stays as it is, where it is not light or the factorization fails.
  bool refine(GramMatrix& gram);

  // X = Q a, in scratch memory. The pass cannot be refined any more.
  at::Tensor apply(const at::Tensor& a);

  // <A, X>, known before X is; not of fine passes.
  double value() const { return value_; }
  // What rounding may add to <A, X>: less this, it is attained by a matrix of spectral norm at most 1.
  double value_rounding() const { return value_rounding_; }
  // Not of fine passes.
  const NuclearBounds& nuclear_norm() const { return bounds_; }
  double resolution() const;
  double floor() const;

 private:
  ZolotarevPass(Accuracy accuracy, double lambda) : accuracy_(accuracy), lambda_(lambda) {}

  // Value and certificate from the moments.
  void certify(const GramMatrix& gram);

  Accuracy accuracy_;
  double lambda_;
  std::vector<at::Tensor> inverses_;  // lower triangles, until Q is formed of them
  at::Tensor q_;
  std::vector<double> moments_;  // of the spectrum of S: what certificates combine
  double value_ = 0;
  double value_rounding_ = 0;
  NuclearBounds bounds_{0, std::numeric_limits<double>::infinity()};
};

}  // namespace tensorion
