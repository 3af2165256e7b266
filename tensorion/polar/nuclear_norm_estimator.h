// Bounds of the nuclear norm ||A||_* that can be refined step by step, and the polar factor of A.
//
// The first upper bound follows from the trace and the Frobenius norm of A A^T. Each refinement adds
// log-determinants of shifted Gram matrices (see log_det_bounds.h). The last one computes all singular values
// in double precision. The polar factor reuses the Gram matrix.
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
  // Computes the Gram matrix of `a` and an upper bound. The lower bound is 0. Throws if `a` is not a single
  // finite matrix.
  explicit NuclearNormEstimator(const at::Tensor& a);
  const at::Tensor& matrix() const { return input_; }

  // Tightens the bounds with 2, 4, 7 and 11 log-determinants, and finally with all eigenvalues in double
  // precision, which costs many times as much. A level that the precision does not allow leaves the bounds
  // unchanged. Returns false if no level is left.
  bool refine();
  // Returns true if refine() would return true.
  bool can_refine() const;
  // Returns true if the next refinement computes eigenvalues.
  bool needs_eigenvalues() const;
  int refinements() const { return refinements_; }

  // Certified in double precision. In single precision, the allowance for rounding is an estimate (see
  // GramMatrix).
  NuclearBounds bounds() const { return unscaled(bounds_); }
  // Tighter than bounds(), but heuristic (see LogDetBounds).
  NuclearBounds heuristic_bounds() const { return unscaled(heuristic_bounds_); }

  // Returns the same as certified_polar with the method "halley". Consumes the estimator.
  PolarFactor factor() &&;

  // Returns an estimator for another unfolding of the same tensor, whose row modes or column modes are a
  // subset of the modes of the shorter side of this matrix. `sizes` are the sizes of the modes of the shorter
  // side; kept[i] is true if mode i is in the subset. The Gram matrix is a partial trace, which is cheap. The
  // estimator uses log-determinants only, and has no polar factor.
  NuclearNormEstimator partial_trace(at::IntArrayRef sizes, const std::vector<bool>& kept);

  // Frees the input. Call restore() with the same matrix before matrix(), factor(), or a refine() that needs
  // eigenvalues.
  void release_input();
  // Frees the memory of all matrices and keeps the bounds. Call restore() with the same matrix before
  // refine(), partial_trace(), matrix() or factor().
  void release();
  bool is_released() const { return released_; }
  bool has_input() const { return input_.defined(); }
  void restore(const at::Tensor& a);

 private:
  NuclearNormEstimator() = default;
  NuclearBounds unscaled(const NuclearBounds& bounds) const;
  void tighten(const NuclearBounds& bounds);
  double trace_error(const GramMatrix& gram);
  void compute_eigenvalues(GramMatrix& gram);
  PolarFactor factor_in_double();
  std::optional<PolarFactor> deflated_factor();
  // Returns the polar factor for the factor x of a_, a lower bound of <a_, x>, and an upper bound of the
  // norm.
  PolarFactor finished(at::Tensor x, double value, double upper) const;

  at::Tensor input_;
  // The input times 2^-exponent_ in fp32 or fp64, transposed if m > n. Undefined if the input is zero.
  at::Tensor a_;
  int exponent_ = 0;
  std::optional<GramMatrix> gram_;     // of a_
  std::optional<double> trace_error_;  // of gram_, computed on first use
  std::optional<LogDetBounds> log_det_bounds_;
  int refinements_ = 0;
  bool is_part_ = false;  // true if made by partial_trace(): a_ is undefined
  bool released_ = false;
  bool exact_ = false;    // true if the bounds come from eigenvalues
  NuclearBounds bounds_;  // of a_
  NuclearBounds heuristic_bounds_;
};

}  // namespace tensorion
