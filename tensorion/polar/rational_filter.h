// A rational filter that brings singular values close to 1, with a certificate: the method "halley".
//
// For A (m x n, m <= n) and S = A A^T / lambda, lambda >= the largest eigenvalue of A A^T, the filter is
//   X = Q A,  Q = (alpha I + gamma S + sum_j beta_j (S + c_j I)^-1) / sqrt(lambda).
// It takes a singular value sigma of A / sqrt(lambda) to f(sigma) in [0, 1]. The inverses do not depend on
// each other and are added as they are needed. The weights are chosen last, when the spectrum is known, from
// a few sets.
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "tensorion/polar/gram_matrix.h"
#include "tensorion/polar/rational_filter_tables.h"
#include "tensorion/polar/spectrum_moments.h"

namespace tensorion {

class RationalFilter {
 public:
  // A filter with two poles; nothing if a factorization fails. `factors` are used instead of new
  // factorizations.
  static std::optional<RationalFilter> solve(const GramMatrix& gram, PoleFactors factors = {});

  // Adds one or two of the five poles. Returns false, and leaves the filter as it is, if there is none, if it
  // lies below the resolution of the Gram matrix, or if its factorization fails.
  bool refine(const GramMatrix& gram);

  // Chooses the weights with the largest passband_min() instead of those with the largest value: to start
  // another filter from.
  void maximize_passband();

  // X = Q a, in scratch memory.
  at::Tensor apply(const at::Tensor& a) &&;

  // A lower bound of <A, X>, known before X is, that a matrix of spectral norm at most 1 attains.
  double value() const { return value_; }
  // What rounding may have added to <A, X>.
  double value_rounding() const { return value_rounding_; }
  const NuclearBounds& nuclear_norm() const { return bounds_; }
  // What rounding has added to the upper bound.
  double upper_rounding() const { return upper_rounding_; }
  // Singular values of A above the cutoff land in [passband_min, 1], smaller ones at their share of
  // passband_min or above.
  double cutoff() const;
  double passband_min() const { return weights_->passband_min; }

 private:
  RationalFilter(const GramMatrix& gram, PoleFactors factors);

  // Inverts S + c_j I for the next poles, on a thread each if that pays. Returns false if a factorization
  // fails; the inverses before it are kept.
  bool add_inverses(const GramMatrix& gram, size_t count);
  // Derives bounds and weights from the moments of the first `poles` poles.
  void certify(const GramMatrix& gram, size_t poles);

  at::Tensor s_;  // lambda S by its lower triangle
  double lambda_;
  PoleFactors factors_;
  SpectrumMoments moments_;
  std::vector<at::Tensor> inverses_;  // lower triangles
  const rational_filter_tables::FilterWeights* weights_ = nullptr;
  size_t weighted_poles_ = 0;  // how many poles the weights are for
  double min_eigenvalue_ = 0;  // a lower bound of the smallest eigenvalue of S
  double value_ = -std::numeric_limits<double>::infinity();
  double value_rounding_ = 0;
  double upper_rounding_ = 0;
  NuclearBounds bounds_{0, std::numeric_limits<double>::infinity()};
};

// Zolotarev's function with six poles, for matrices whose singular values are near 1 for the most part: those
// above a thousandth of the largest land in [0.9965, 1]. It has no certificate.
struct FineFilterResult {
  at::Tensor x;  // in scratch memory
  double cutoff;
  double passband_min;
};
// Nothing is returned if a factorization fails.
std::optional<FineFilterResult> apply_fine_filter(const at::Tensor& a);

}  // namespace tensorion
