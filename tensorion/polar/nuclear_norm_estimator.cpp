#include "tensorion/polar/nuclear_norm_estimator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tensorion/core/gemm.h"
#include "tensorion/core/mkl_single_thread_guard.h"
#include "tensorion/core/precision.h"
#include "tensorion/core/strided.h"
#include "tensorion/polar/deflation.h"
#include "tensorion/polar/rational_filter.h"
#include "tensorion/polar/svd_factor.h"
#include "tensorion/polar/symmetric.h"

namespace tensorion {
namespace {

// The maximum number of filters that are applied in sequence before the method switches to double precision.
constexpr int kMaxPasses = 4;

// Returns the input in the dtype of the computation, transposed if m > n.
at::Tensor to_wide(const at::Tensor& a) { return (a.size(0) > a.size(1) ? a.mT() : a).to(compute_type(a)); }

}  // namespace

NuclearNormEstimator::NuclearNormEstimator(const at::Tensor& a) : input_(a) {
  check_polar_input(a);
  TORCH_CHECK_VALUE(a.dim() == 2, "[tensorion.polar] expected one matrix, got shape ", a.sizes());
  if (a.numel() == 0) return;
  a_ = to_wide(a);
  gram_.emplace(a_);
  // If squares of elements overflow or underflow, or an element is not finite, the trace is out of range.
  // Only then are the elements inspected, and rescaled by a power of two, which is exact.
  if (!(gram_->trace > 1 / kModerateSquares && gram_->trace < kModerateSquares)) {
    const double largest = largest_entry(a_);
    if (largest == 0) {
      a_.reset();
      gram_.reset();
      return;
    }
    exponent_ = std::ilogb(largest);
    a_ = scale_by_power_of_two(a_, -exponent_);
    gram_.emplace(a_);
  }
  bounds_ = heuristic_bounds_ = {0, gram_->nuclear_upper};
}

NuclearBounds NuclearNormEstimator::unscaled(const NuclearBounds& bounds) const {
  return {std::ldexp(bounds.lower, exponent_), std::ldexp(bounds.upper, exponent_)};
}

// Intersects the bounds. Rounding must not make the lower bound exceed the upper one.
void NuclearNormEstimator::tighten(const NuclearBounds& bounds) {
  bounds_.upper = std::max(bounds_.lower, std::min(bounds_.upper, bounds.upper));
  bounds_.lower = std::clamp(bounds.lower, bounds_.lower, bounds_.upper);
}

bool NuclearNormEstimator::needs_eigenvalues() const {
  return gram_ && log_det_bounds_ && log_det_bounds_->exhausted(*gram_);
}

bool NuclearNormEstimator::can_refine() const {
  return gram_ && !exact_ && !(is_part_ && needs_eigenvalues());
}

bool NuclearNormEstimator::refine() {
  if (!gram_ || !can_refine()) return false;
  ++refinements_;
  auto& gram = *gram_;
  if (needs_eigenvalues()) {
    compute_eigenvalues(gram);
    return true;
  }
  if (!log_det_bounds_) log_det_bounds_.emplace(gram, trace_error(gram));
  auto& log_det_bounds = *log_det_bounds_;
  if (log_det_bounds.exhausted(gram)) return true;
  if (log_det_bounds.refine(gram)) {
    tighten(log_det_bounds.bounds());
    heuristic_bounds_ = log_det_bounds.heuristic_bounds();
  }
  return true;
}

// Returns the error of the trace of the Gram matrix, |tr(A A^T) - ||A||_F^2|.
double NuclearNormEstimator::trace_error(const GramMatrix& gram) {
  if (!trace_error_) trace_error_ = std::abs(inner_product(a_, a_) - gram.trace);
  return *trace_error_;
}

NuclearNormEstimator NuclearNormEstimator::partial_trace(at::IntArrayRef sizes,
                                                         const std::vector<bool>& kept) {
  NuclearNormEstimator part;
  part.is_part_ = true;
  if (!gram_) return part;
  part.exponent_ = exponent_;
  part.gram_ = gram_->partial_trace(sizes, kept);
  part.trace_error_ = trace_error(*gram_);
  part.bounds_ = part.heuristic_bounds_ = {0, part.gram_->nuclear_upper};
  return part;
}

void NuclearNormEstimator::release_input() {
  if (gram_ && a_.defined()) trace_error(*gram_);  // needs the input
  input_.reset();
  a_.reset();
}

void NuclearNormEstimator::release() {
  input_.reset();
  a_.reset();
  if (gram_) gram_->matrix.reset();
  released_ = true;
}

void NuclearNormEstimator::restore(const at::Tensor& a) {
  TORCH_INTERNAL_ASSERT(!has_input());
  released_ = false;
  input_ = a;
  if (!gram_) return;
  a_ = to_wide(a);
  if (exponent_ != 0) a_ = scale_by_power_of_two(a_, -exponent_);
  if (!gram_->matrix.defined()) gram_->matrix = lower_gram(a_);
}

// Replaces all bounds. An error of spectral norm d in the Gram matrix changes its eigenvalues by at most d,
// and a singular value sigma by at most min(sqrt(d), d / sigma).
void NuclearNormEstimator::compute_eigenvalues(GramMatrix& gram) {
  exact_ = true;
  gram.matrix.reset();  // Free memory for the computation below.
  constexpr int64_t kSmall = 256;
  const double epsilon = machine_epsilon(at::kDouble);
  const auto sides = static_cast<double>(a_.size(0) + a_.size(1));
  const MklSingleThreadGuard single_thread;
  if (a_.size(0) <= kSmall) {
    const double norm = at::linalg_svdvals(a_.to(at::kDouble)).sum().item<double>();
    const double slack = sides * epsilon * norm;
    bounds_ = heuristic_bounds_ = {norm - slack, norm + slack};
    return;
  }
  const auto values = at::linalg_eigvalsh(gram_in_double(a_)).clamp_min_(0).sqrt_();
  const double norm = values.sum().item<double>();
  const auto around = [&](double error) -> NuclearBounds {
    const double slack = (error / values).clamp_max_(std::sqrt(error)).sum().item<double>();
    return {norm - slack, norm + slack};
  };
  bounds_ = around(sides * epsilon * gram.trace);
  heuristic_bounds_ = around(4 * epsilon * gram.lambda);
}

// Used if single precision does not suffice, because the Gram matrix squares the condition number.
PolarFactor NuclearNormEstimator::factor_in_double() {
  if (a_.scalar_type() == at::kDouble) return svd_factor(input_);
  const auto input = input_;
  release();
  auto factor = NuclearNormEstimator(input.to(at::kDouble)).factor();
  const double kept = 1 - machine_epsilon(at::kFloat);  // allows for rounding x to the dtype of the input
  return {factor.x.to(input.scalar_type()), kept * factor.value, factor.nuclear};
}

PolarFactor NuclearNormEstimator::finished(at::Tensor x, double value, double upper) const {
  if (input_.size(0) > input_.size(1)) x = x.mT();
  return {x.to(input_.scalar_type()), std::ldexp(value, exponent_),
          unscaled({std::max(bounds_.lower, value), upper})};
}

// Returns nullopt if a deflation does not help, or if the quality does not suffice. The Gram matrix may then
// be undefined.
std::optional<PolarFactor> NuclearNormEstimator::deflated_factor() {
  auto& original = gram_.value();
  auto gram = original;  // shares the memory of the matrix
  const auto deflation = Deflation::apply(gram);
  if (!deflation) return std::nullopt;
  original.matrix.reset();
  auto filter = RationalFilter::solve(gram);
  if (!filter) return std::nullopt;
  const double removed = deflation->removed_norm();
  const auto tighten_bounds = [&] {
    if (!exact_) tighten({filter->nuclear_norm().lower, filter->nuclear_norm().upper + removed});
  };
  tighten_bounds();
  while (filter->value() < kPolarQuality * (bounds_.upper - removed) && filter->refine(gram))
    tighten_bounds();
  // If the filter cannot reach the target, the removed part may make up for it: its quality is about 0.99. A
  // filter without weights, whose value is -infinity, is discarded here.
  double value = filter->value();
  if (value + removed < kPolarQuality * bounds_.upper) return std::nullopt;
  gram.matrix.reset();  // The filter shares this memory and frees it in matrix().
  auto q = std::move(*filter).matrix();
  value += deflation->undo(q);
  if (value < kPolarQuality * bounds_.upper) return std::nullopt;
  return finished(gemm(q, a_), value, bounds_.upper);
}

PolarFactor NuclearNormEstimator::factor() && {
  if (!gram_) return {at::zeros_like(input_), 0, {}};
  if (is_tiny(input_)) return svd_factor(input_);
  auto& gram = *gram_;
  if (!gram.matrix.defined()) gram.matrix = lower_gram(a_);
  if (const auto factor = deflated_factor()) return *factor;
  if (!gram.matrix.defined()) gram.matrix = lower_gram(a_);
  auto filter = RationalFilter::solve(gram);
  if (!filter) return factor_in_double();
  if (!exact_) tighten(filter->nuclear_norm());
  const auto reached_target = [&] { return filter->value() >= kPolarQuality * bounds_.upper; };
  // More poles do not help, because the effect of rounding increases as the poles become smaller.
  const auto limited_by_rounding = [&] {
    return filter->value_rounding() + filter->upper_rounding() > (1 - kPolarQuality) * bounds_.upper;
  };
  while (!reached_target() && !limited_by_rounding() && filter->refine(gram)) {
    if (!exact_) tighten(filter->nuclear_norm());
  }
  if (!reached_target() && limited_by_rounding()) {
    filter.reset();
    return factor_in_double();
  }
  double upper = bounds_.upper;
  double value = filter->value();
  const double rounding = filter->value_rounding();
  if (!reached_target()) filter->maximize_passband();
  double cutoff = filter->cutoff();
  double passband_min = filter->passband_min();
  gram_.reset();  // The filter shares this memory and frees it in matrix().
  auto x = gemm(std::move(*filter).matrix(), a_);
  // Each further filter is applied to X, in which small singular values are already larger by a factor of up
  // to a thousand.
  for (int passes = 1; value < kPolarQuality * upper; ++passes) {
    if (passes == kMaxPasses) return factor_in_double();
    const auto fine = apply_fine_filter(x);
    if (!fine) return factor_in_double();
    x = fine->x;
    const double product = inner_product(a_, x);
    value = product - rounding;
    cutoff *= fine->cutoff / passband_min;
    passband_min = fine->passband_min;
    // Let f be the singular value of X for the singular value sigma of A. Above the cutoff, f is in
    // [passband_min, 1]. Below it, sigma (1 - f) <= cutoff / passband_min f (1 - f), and f (1 - f) <= (1 -
    // f^2) / 2.
    const double unresolved =
        std::max(0.0, x.size(0) - std::pow(at::linalg_vector_norm(x).item<double>(), 2));
    upper = std::min(upper, (product + rounding + cutoff * unresolved / 2) / passband_min);
  }
  return finished(x, value, upper);
}

}  // namespace tensorion
