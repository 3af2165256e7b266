// A nuclear norm between bounds that can be refined, and the polar factor from what was computed for them.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "tensorion/polar/gram_matrix.h"
#include "tensorion/polar/log_det_bounds.h"
#include "tensorion/polar/polar_factor.h"

namespace tensorion {

class NuclearNormEstimator {
 public:
  // `a`: one finite matrix. At first there is an upper bound, for the price of a Gram matrix.
  explicit NuclearNormEstimator(const at::Tensor& a);
  const at::Tensor& matrix() const { return input_; }

  // Narrows the bounds: by three log-determinants, seven, nine, eleven, and at last by all eigenvalues in
  // double precision, at many times the price. Returns false if there is nothing left to do. A call may find
  // that log-determinants do not help, and leave the bounds as they are.
  bool refine();
  // True if refine() would return true.
  bool can_refine() const;
  // True if the next refinement computes eigenvalues.
  bool needs_eigenvalues() const;
  int refinements() const { return refinements_; }

  NuclearBounds bounds() const { return unscaled(bounds_); }
  // Tighter than bounds(), but heuristic: see LogDetBounds.
  NuclearBounds heuristic_bounds() const { return unscaled(heuristic_bounds_); }

  // As certified_polar with method "halley".
  PolarFactor factor() &&;

  // The estimator of an unfolding whose row modes, or column modes, are some of those of the shorter side of
  // the matrix, which has these sizes. It costs almost nothing, and gives bounds by log-determinants only.
  NuclearNormEstimator partial_trace(at::IntArrayRef sizes, const std::vector<bool>& kept);

  // Gives back the memory of all matrices; the bounds stay. restore() must be called with the same matrix
  // before any of refine(), partial_trace(), matrix() and factor().
  void release();
  bool is_released() const { return released_; }
  void restore(const at::Tensor& a);

 private:
  NuclearNormEstimator() = default;
  NuclearBounds unscaled(const NuclearBounds& bounds) const;
  void narrow(const NuclearBounds& bounds);
  double trace_error(const GramMatrix& gram);
  void compute_eigenvalues(GramMatrix& gram);
  PolarFactor factor_in_double();

  at::Tensor input_;
  at::Tensor a_;  // the input with m <= n, in fp32 or fp64, times 2^-exponent_; undefined if it is zero
  int exponent_ = 0;
  std::optional<GramMatrix> gram_;  // of a_
  PoleFactors factors_;             // of gram_
  std::optional<double> trace_error_;
  std::optional<LogDetBounds> log_det_bounds_;
  int refinements_ = 0;
  bool is_part_ = false;  // a partial trace, without a matrix of its own
  bool released_ = false;
  bool exact_ = false;
  NuclearBounds bounds_;  // of a_
  NuclearBounds heuristic_bounds_;
};

}  // namespace tensorion
