// One rational pass towards the polar factor, with a certificate.
//
// For A (m x n, m <= n) and S = A A^T / lambda, lambda >= the largest eigenvalue of A A^T, the pass is
//   X = Q A,  Q = (alpha I + sum_j beta_j (S + c_j I)^-1) / sqrt(lambda):
// Zolotarev's best rational approximation of the sign of the singular values. With four poles it equals two
// dynamically weighted Halley steps, but needs no products between them. Singular values of A above `resolution`
// land in [floor, 1], smaller ones below, and none exceeds 1.
//
// The inverses give away traces (of themselves, of their squares, and their log-determinants) that bound the
// nuclear norm of A from both sides: see scripts/make_zolotarev_tables.py.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace tensorion {

// lower <= ||A||_* <= upper.
struct NuclearBounds {
  double lower = 0;
  double upper = 0;
};

class ZolotarevPass {
 public:
  enum class Accuracy {
    coarse,  // four poles, floor 0.963, nuclear norm certified
    fine,    // six poles, floor 0.9965
  };

  // `a`: m <= n, fp32 or fp64, finite, not zero, entries of moderate size. Nothing is returned where a
  // factorization fails. Where a bound from the Gram matrix alone shows ||a||_* < bar, the pass ends there:
  // it then knows nothing but that bound, and is not complete().
  static std::optional<ZolotarevPass> solve(const at::Tensor& a, Accuracy accuracy, double bar = 0);
  bool complete() const { return q_.defined(); }

  // X = Q a.
  at::Tensor apply(const at::Tensor& a) const;

  // Of the matrix that was passed; only coarse passes certify both sides.
  const NuclearBounds& nuclear_norm() const { return bounds_; }
  double resolution() const { return resolution_; }
  double floor() const { return floor_; }

 private:
  ZolotarevPass() = default;

  at::Tensor q_;
  NuclearBounds bounds_;
  double resolution_ = 0;
  double floor_ = 0;
};

}  // namespace tensorion
