// One rational pass towards the polar factor, with a certificate.
//
// For A (m x n, m <= n) and S = A A^T / lambda, lambda >= the largest eigenvalue of A A^T, the pass is
//   X = Q A,  Q = (alpha I + gamma S + sum_j beta_j (S + c_j I)^-1) / sqrt(lambda):
// it takes a singular value sigma of A / sqrt(lambda) to f(sigma) in [0, 1]. Its inverses do not depend on
// each other and come as they are needed; the weights are chosen last, when the spectrum is known, from a few
// sets.
//
// The inverses give away traces (of themselves, of their squares, and their log-determinants) that bound the
// nuclear norm of A from both sides: see scripts/make_zolotarev_tables.py.
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "tensorion/gram_matrix.h"

namespace tensorion {

class ZolotarevPass {
 public:
  // Two poles. Nothing is returned where a factorization fails.
  static std::optional<ZolotarevPass> solve(GramMatrix& gram);

  // Zolotarev's function with six poles, for matrices whose singular values are near 1 for the most part:
  // those above a thousandth of the largest land in [0.9965, 1]. Without a certificate.
  static std::optional<ZolotarevPass> solve_finely(GramMatrix gram);

  // One more inverse, of five, or two; the fourth in the memory of the Gram matrix, which is used up. Returns
  // false, and the pass stays as it is, where there is no further one or the factorization fails.
  bool refine(GramMatrix& gram);

  // Takes the weights with the largest floor instead of those with the largest value: to start another pass
  // from.
  void choose_floor();

  // X = Q a, in scratch memory. The pass cannot be refined any more.
  at::Tensor apply(const at::Tensor& a);

  // A lower bound of <A, X>, known before X is, that a matrix of spectral norm at most 1 attains; not of fine
  // passes.
  double value() const { return value_; }
  // What rounding may have added to <A, X>.
  double value_rounding() const { return value_rounding_; }
  // Not of fine passes.
  const NuclearBounds& nuclear_norm() const { return bounds_; }
  // What rounding has added to the upper bound.
  double upper_rounding() const { return upper_rounding_; }
  // Singular values of A above the resolution land in [floor, 1], smaller ones above their share of the
  // floor.
  double resolution() const { return resolution_; }
  double floor() const { return floor_; }

 private:
  explicit ZolotarevPass(const GramMatrix& gram);

  // Inverts S + c I for these c, side by side, by the factors that gram keeps where it has them; the last of
  // them in the memory of S if so asked. Returns false where a factorization fails; those before it are kept.
  bool add_inverses(GramMatrix& gram, std::span<const double> poles, bool in_place);
  // Certificate and weights from the moments of so many poles.
  void certify(const GramMatrix& gram, size_t poles);
  void choose(size_t poles, size_t filter);

  at::Tensor s_;         // its lower triangle
  at::Tensor diagonal_;  // of S, where another matrix shares its memory
  double lambda_;
  double least_ = 0;  // a lower bound of the smallest eigenvalue of S
  bool fine_ = false;
  std::vector<double> moments_;       // of the spectrum of S: what certificates combine
  std::vector<at::Tensor> inverses_;  // lower triangles, until Q is formed of them
  at::Tensor q_;
  std::span<const double> weights_;  // alpha, gamma, beta_j
  double floor_ = 0;
  double resolution_ = 0;
  double value_ = -std::numeric_limits<double>::infinity();
  double value_rounding_ = 0;
  double upper_rounding_ = 0;
  NuclearBounds bounds_{0, std::numeric_limits<double>::infinity()};
};

}  // namespace tensorion
