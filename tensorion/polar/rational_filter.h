// A rational filter that moves singular values close to 1, with bounds of <A, X> and ||A||_*. It implements
// the method "halley".
//
// For A (m x n, m <= n) and S = A A^T / lambda with lambda >= ||A||_2^2, the filter computes
//   X = Q A,  Q = (alpha I + gamma S + sum_j beta_j (S + c_j I)^-1) / sqrt(lambda).
// X has the singular vectors of A. A singular value sigma of A / sqrt(lambda) becomes f(sigma) in [0, 1]. The
// inverses are independent of each other, so poles can be added until the quality suffices. The weights
// alpha, beta_j and gamma are chosen last, from a table, by the moments of the spectrum.
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
  // Returns a filter with two poles, or nullopt if a factorization fails.
  static std::optional<RationalFilter> solve(const GramMatrix& gram);

  // Adds one or two poles, up to five in total. Returns false and leaves the filter unchanged if it has all
  // poles, if the precision of the Gram matrix does not resolve the next pole, or if a factorization fails.
  bool refine(const GramMatrix& gram);

  // Selects the weights with the largest passband_min() instead of those with the largest value(). The result
  // is a better input for a second filter.
  void maximize_passband();

  // Returns Q in scratch memory. Consumes the filter.
  at::Tensor matrix() &&;

  // A lower bound of <A, X>, computed from the moments. Since ||X||_2 <= 1, it is also one of ||A||_*. If the
  // precision of the Gram matrix does not resolve the poles, no weights are selected, and the value is
  // -infinity. Then maximize_passband() must be called before matrix().
  double value() const { return value_; }
  // The allowance for rounding that was subtracted from value().
  double value_rounding() const { return value_rounding_; }
  const NuclearBounds& nuclear_norm() const { return bounds_; }
  // The allowance for rounding that is part of nuclear_norm().upper.
  double upper_rounding() const { return upper_rounding_; }
  // A singular value sigma of A above the cutoff becomes a value in [passband_min, 1]. A smaller one becomes
  // a value of at least passband_min sigma / cutoff.
  double cutoff() const;
  double passband_min() const { return weights_->passband_min; }

 private:
  explicit RationalFilter(const GramMatrix& gram);

  // Inverts S + c_j I for the next `count` poles, in parallel if use_paired_threads() is true. Returns false
  // if a factorization fails; the inverses before it are kept.
  bool add_inverses(const GramMatrix& gram, size_t count);
  // Computes the bounds and selects the weights from the moments of the first `poles` poles.
  void update_bounds_and_weights(const GramMatrix& gram, size_t poles);

  at::Tensor s_;  // the lower triangle of lambda S
  double lambda_;
  SpectrumMoments moments_;
  std::vector<at::Tensor> inverses_;  // lower triangles
  const rational_filter_tables::FilterWeights* weights_ = nullptr;
  size_t weighted_poles_ = 0;  // number of poles of the selected weights
  double min_eigenvalue_ = 0;  // lower bound of the smallest eigenvalue of S
  double value_ = -std::numeric_limits<double>::infinity();
  double value_rounding_ = 0;
  double upper_rounding_ = 0;
  NuclearBounds bounds_{0, std::numeric_limits<double>::infinity()};
};

struct FineFilterResult {
  at::Tensor x;   // in scratch memory
  double cutoff;  // singular values above the cutoff become values in [passband_min, 1]
  double passband_min;
};

// Applies Zolotarev's function with six poles. Its cutoff is a thousandth of the bound of the largest
// singular value, and passband_min is 0.9965. It is used if most singular values are already near 1. It
// computes no bounds. Returns nullopt if a factorization fails.
std::optional<FineFilterResult> apply_fine_filter(const at::Tensor& a);

}  // namespace tensorion
