// The orthogonal polar factor polar(A) = U V^T of A = U Sigma V^T: the linear minimization oracle of the
// spectral norm. The quality of an answer X is q = <A, X> / (||X||_2 ||A||_*), at most 1.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensorion/coefficients.h"
#include "tensorion/determinants.h"
#include "tensorion/gram_matrix.h"

namespace tensorion {

struct PolarOptions {
  // "halley":        rational passes by Cholesky, repeated until q >= 0.97 is certified; the best on CPUs.
  // "newton_schulz": polynomial, matrix products only; the best on accelerators (there in bf16).
  // "svd":           exact.
  // "auto":          halley on CPU, newton_schulz elsewhere.
  std::string method = "auto";
  Coefficients ns_coefficients = named_coefficients("muon");
  int64_t ns_steps = 5;

  // Throws where an option is out of range.
  void check() const;
};

// q that "halley" certifies before it stops.
inline constexpr double kPolarQuality = 0.97;

// The polar factor of each matrix of a (..., m, n) tensor, in its dtype. Zero gives zero; the answer does not
// depend on the scale of the input. fp16 and bf16 are computed in fp32 on CPU. Non-finite input is an error
// on CPU; elsewhere it gives non-finite output, since finding it would stall the device.
at::Tensor polar(const at::Tensor& a, const PolarOptions& options = {});

// The same for one matrix, in scratch memory where that serves: not to be kept.
at::Tensor polar_scratch(const at::Tensor& a, const PolarOptions& options);

// The polar factor of one matrix with what is known of it.
struct PolarFactor {
  at::Tensor x;      // may lie in scratch memory: to be kept, it must be copied
  double value = 0;  // <A, X> / max(1, bound of ||X||_2): attained by a matrix of spectral norm at most 1
  NuclearBounds nuclear;  // of A
};
PolarFactor certified_polar(const at::Tensor& a, const PolarOptions& options = {});

// A nuclear norm between bounds that can be refined; factor() uses what was computed for them.
class NuclearEstimate {
 public:
  // `a`: one finite matrix. At first an upper bound, for the price of a Gram matrix.
  explicit NuclearEstimate(const at::Tensor& a);
  const at::Tensor& matrix() const { return input_; }
  // Closer bounds: by three determinants, seven, nine, eleven, and at last by all eigenvalues in double
  // precision, at many times the price. Returns false if there are none. A call may find that no determinant
  // helps, and leave the bounds as they are.
  bool refine();
  // Whether refine() would return true.
  bool can_refine() const;
  // Whether the next refinement is that by eigenvalues.
  bool needs_eigenvalues() const;
  int refinements() const { return refinements_; }
  NuclearBounds bounds() const { return unscaled(bounds_); }
  // Closer than bounds() by what rounding could do at worst, but hardly does.
  NuclearBounds likely() const { return unscaled(likely_); }
  // As certified_polar with method "halley". To be called once.
  PolarFactor factor();
  // Of an unfolding whose row modes, or column modes, are some of those of a's shorter side, `sizes`: it
  // comes almost for free, for bounds alone, without eigenvalues or factor. To be called after refine().
  NuclearEstimate partial_trace(at::IntArrayRef sizes, const std::vector<bool>& kept) const;

  // Gives back the memory of all matrices; what is known of the norm stays. Before the next call of refine(),
  // partial_trace(), matrix() or factor() the matrix must be set again.
  void release();
  bool is_released() const { return released_; }
  void restore(const at::Tensor& a);

 private:
  NuclearEstimate() = default;
  NuclearBounds unscaled(const NuclearBounds& bounds) const;
  void narrow(const NuclearBounds& bounds);
  void compute_eigenvalues();
  PolarFactor factor_in_double();

  at::Tensor input_;
  at::Tensor a_;  // the input with m <= n, in fp32 or fp64, times 2^-exponent_; undefined where it is zero
  int exponent_ = 0;
  std::optional<GramMatrix> gram_;  // of a_
  double trace_error_ = 0;
  std::optional<Determinants> determinants_;
  int refinements_ = 0;
  bool is_part_ = false;  // a partial trace, without a matrix of its own
  bool released_ = false;
  bool exact_ = false;
  NuclearBounds bounds_;  // of a_
  NuclearBounds likely_;
};

}  // namespace tensorion
