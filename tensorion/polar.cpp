#include "tensorion/polar.h"

#include <ATen/ATen.h>

#include <cmath>

#include "tensorion/elementwise.h"
#include "tensorion/lone_lapack.h"
#include "tensorion/newton_schulz.h"
#include "tensorion/parallel.h"
#include "tensorion/precision.h"
#include "tensorion/symmetric.h"
#include "tensorion/zolotarev.h"

namespace tensorion {
namespace {

constexpr int kMaxPasses = 4;

// Matrices of a batch of at least so many rows are solved on all threads, one after the other.
constexpr int64_t kLargeSide = 256;
// Up to this size an SVD takes less time than the calls of a rational pass do.
constexpr int64_t kTinySide = 16;
// Elements that are decomposed by one call.
constexpr int64_t kBatchElements = 1 << 16;

void check_input(const at::Tensor& a) {
  TORCH_CHECK_TYPE(at::isFloatingType(a.scalar_type()) && !at::isFloat8Type(a.scalar_type()),
                   "[tensorion.polar] expected a real floating-point tensor, got ", a.scalar_type());
  TORCH_CHECK_VALUE(a.layout() == at::kStrided, "[tensorion.polar] expected a dense tensor, got ",
                    a.layout());
  TORCH_CHECK_VALUE(a.dim() >= 2, "[tensorion.polar] expected (..., m, n), got shape ", a.sizes());
}

at::ScalarType compute_type(const at::Tensor& a) {
  return a.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// max |a|, which must be finite.
double largest_entry(const at::Tensor& a) {
  const auto [low, high] = at::aminmax(a);
  const double largest = std::max(-low.item<double>(), high.item<double>());
  TORCH_CHECK_VALUE(std::isfinite(largest),
                    "[tensorion.polar] expected a finite matrix, got one that contains ",
                    std::isnan(largest) ? "nan" : "inf");
  return largest;
}

// a * 2^exponent, in two factors since one may leave the range of the dtype.
at::Tensor scaled(const at::Tensor& a, int exponent) {
  return (a * std::ldexp(1.0, exponent / 2)).mul_(std::ldexp(1.0, exponent - exponent / 2));
}

// The input in the dtype to compute in, with m <= n.
at::Tensor wide(const at::Tensor& a) { return (a.size(0) > a.size(1) ? a.mT() : a).to(compute_type(a)); }

// U V^T of the compact SVD of each matrix of a batch, computed in double precision.
struct SvdFactors {
  at::Tensor x;
  at::Tensor product;  // <A, X>, each
  at::Tensor noise;    // the sum of the singular values that were left out
};

// Directions whose singular value is no larger than the rounding of A's own entries are left out.
SvdFactors svd_factors(const at::Tensor& a) {
  const auto largest = a.abs().amax({-2, -1}, /*keepdim=*/true).to(at::kDouble);
  TORCH_CHECK_VALUE(largest.isfinite().all().item<bool>(),
                    "[tensorion.polar] expected a finite matrix, got one that contains ",
                    largest.isnan().any().item<bool>() ? "nan" : "inf");
  const auto scale = at::where(largest > 0, largest, 1);
  const auto work = a.to(at::kDouble) / scale;
  const LoneLapack lone;
  const auto [u, s, vh] = at::linalg_svd(work, /*full_matrices=*/false);
  const double side = std::sqrt(static_cast<double>(std::max(a.size(-2), a.size(-1))));
  const auto noise = at::linalg_vector_norm(s, 2, {-1}, /*keepdim=*/true) *
                     (machine_epsilon(compute_type(a)) + 8 * side * machine_epsilon(at::kDouble));
  const auto kept = (s > noise).to(at::kDouble);
  const auto x = at::matmul(u * kept.unsqueeze(-2), vh);
  // The sum of s has all the rounding of the algorithm; <A, X>, which the polar factor maximizes, the square
  // of it.
  const auto scales = scale.squeeze(-1).squeeze(-1);
  return {x.to(a.scalar_type()), (work * x).sum({-2, -1}) * scales, (s * (1 - kept)).sum(-1) * scales};
}

PolarFactor svd_factor(const at::Tensor& a) {
  const auto factors = svd_factors(a.unsqueeze(0));
  const double product = factors.product.item<double>();
  const double slack = product * 4 * machine_epsilon(compute_type(a));
  const double value = product - slack;
  return {factors.x[0], value, {value, product + factors.noise.item<double>() + slack}};
}

at::Tensor newton_schulz_factor(const at::Tensor& a, const PolarOptions& options) {
  const auto schedule = coefficient_schedule(options.ns_coefficients, options.ns_steps);
  const bool tall = a.size(-2) > a.size(-1);
  const auto work = (tall ? a.mT() : a).to(a.is_cpu() ? compute_type(a) : at::kBFloat16);
  const auto x = newton_schulz(work, schedule).to(a.scalar_type());
  return tall ? x.mT() : x;
}

std::string resolved(const std::string& method, const at::Tensor& a) {
  if (method != "auto") return method;
  return a.is_cpu() ? "halley" : "newton_schulz";
}

// One matrix by a method other than newton_schulz.
PolarFactor single_factor(const at::Tensor& a, const std::string& method) {
  return method == "svd" ? svd_factor(a) : NuclearEstimate(a).factor();
}

}  // namespace

void PolarOptions::check() const {
  TORCH_CHECK_VALUE(method == "auto" || method == "halley" || method == "newton_schulz" || method == "svd",
                    "[tensorion.polar] method must be 'auto', 'halley', 'newton_schulz' or 'svd', got '",
                    method, "'");
  coefficient_schedule(ns_coefficients, ns_steps);
}

NuclearEstimate::NuclearEstimate(const at::Tensor& a) : input_(a) {
  check_input(a);
  TORCH_CHECK_VALUE(a.dim() == 2, "[tensorion.polar] expected one matrix, got shape ", a.sizes());
  if (a.numel() == 0) return;
  a_ = wide(a);
  gram_.emplace(a_);
  // Squares of entries that are very small or very large leave the range of the dtype, and those of entries
  // that are not finite show here: then, only, the entries are looked at.
  constexpr double kModerate = 1e12;
  if (!(gram_->trace > 1 / kModerate && gram_->trace < kModerate)) {
    const double largest = largest_entry(a_);
    if (largest == 0) {
      a_.reset();
      gram_.reset();
      return;
    }
    exponent_ = std::ilogb(largest);  // by a power of two, so that scaling rounds nothing
    a_ = scaled(a_, -exponent_);
    gram_.emplace(a_);
  }
  bounds_ = likely_ = {0, gram_->nuclear_upper};
}

NuclearBounds NuclearEstimate::unscaled(const NuclearBounds& bounds) const {
  return {std::ldexp(bounds.lower, exponent_), std::ldexp(bounds.upper, exponent_)};
}

// Where bounds of several kinds nearly meet, rounding must not let them pass each other.
void NuclearEstimate::narrow(const NuclearBounds& bounds) {
  bounds_.upper = std::max(bounds_.lower, std::min(bounds_.upper, bounds.upper));
  bounds_.lower = std::clamp(bounds.lower, bounds_.lower, bounds_.upper);
}

bool NuclearEstimate::needs_eigenvalues() const {
  return gram_ && determinants_ && determinants_->exhausted(*gram_);
}

bool NuclearEstimate::can_refine() const { return gram_ && !exact_ && !(is_part_ && needs_eigenvalues()); }

bool NuclearEstimate::refine() {
  if (!can_refine()) return false;
  ++refinements_;
  auto& gram = *gram_;
  if (needs_eigenvalues()) {
    compute_eigenvalues();
    return true;
  }
  if (!determinants_) {
    if (!is_part_) trace_error_ = std::abs(inner_product(a_, a_) - gram.trace);
    determinants_.emplace(gram, trace_error_);
    if (needs_eigenvalues()) return true;
  }
  if (determinants_->refine(gram, /*keep_factors=*/!is_part_)) {
    narrow(determinants_->bounds());
    likely_ = determinants_->likely();
  }
  return true;
}

NuclearEstimate NuclearEstimate::partial_trace(at::IntArrayRef sizes, const std::vector<bool>& kept) const {
  NuclearEstimate part;
  part.is_part_ = true;
  if (!gram_) return part;
  part.exponent_ = exponent_;
  part.gram_ = gram_->partial_trace(sizes, kept);
  part.trace_error_ = trace_error_;
  part.bounds_ = part.likely_ = {0, part.gram_->nuclear_upper};
  return part;
}

void NuclearEstimate::release() {
  input_.reset();
  a_.reset();
  if (gram_) {
    gram_->matrix.reset();
    gram_->factors.clear();
  }
  released_ = true;
}

void NuclearEstimate::restore(const at::Tensor& a) {
  TORCH_INTERNAL_ASSERT(released_);
  released_ = false;
  input_ = a;
  if (!gram_) return;
  a_ = wide(a);
  if (exponent_ != 0) a_ = scaled(a_, -exponent_);
  gram_->matrix = lower_gram(a_);
}

// Replaces all bounds. An error of spectral norm d in the Gram matrix moves its eigenvalues by d at most, and
// a singular value by no more than sqrt(d) or d over itself.
void NuclearEstimate::compute_eigenvalues() {
  exact_ = true;
  auto& gram = *gram_;
  gram.matrix.reset();  // their memory is needed here
  gram.factors.clear();
  constexpr int64_t kSmall = 256;
  const double epsilon = machine_epsilon(at::kDouble);
  const auto sides = static_cast<double>(a_.size(0) + a_.size(1));
  const LoneLapack lone;
  if (a_.size(0) <= kSmall) {
    const double norm = at::linalg_svdvals(a_.to(at::kDouble)).sum().item<double>();
    const double slack = sides * epsilon * norm;
    bounds_ = likely_ = {norm - slack, norm + slack};
    return;
  }
  const auto values = at::linalg_eigvalsh(gram_in_double(a_)).clamp_min_(0).sqrt_();
  const double norm = values.sum().item<double>();
  const auto around = [&](double error) -> NuclearBounds {
    const double slack = (error / values).clamp_max_(std::sqrt(error)).sum().item<double>();
    return {norm - slack, norm + slack};
  };
  bounds_ = around(sides * epsilon * gram.trace);
  likely_ = around(4 * epsilon * gram.lambda);
}

// What single precision could not certify, since the Gram matrix squares the singular values.
PolarFactor NuclearEstimate::factor_in_double() {
  if (a_.scalar_type() == at::kDouble) return svd_factor(input_);
  const auto input = input_;
  release();
  auto factor = NuclearEstimate(input.to(at::kDouble)).factor();
  const double kept = 1 - machine_epsilon(at::kFloat);  // of the value, after rounding
  return {factor.x.to(input.scalar_type()), kept * factor.value, factor.nuclear};
}

PolarFactor NuclearEstimate::factor() {
  if (!gram_) return {at::zeros_like(input_), 0, {}};
  auto& gram = *gram_;
  if (!gram.matrix.defined()) gram.matrix = lower_gram(a_);
  auto pass = ZolotarevPass::solve(gram);
  if (!pass) return factor_in_double();
  if (!exact_) narrow(pass->nuclear_norm());
  const auto good = [&] { return pass->value() >= kPolarQuality * bounds_.upper; };
  // With smaller poles rounding takes more, not less.
  const auto limited = [&] {
    return pass->value_rounding() + pass->upper_rounding() > (1 - kPolarQuality) * bounds_.upper;
  };
  while (!good() && !limited() && pass->refine(gram)) {
    if (!exact_) narrow(pass->nuclear_norm());
  }
  if (!good() && limited()) {
    pass.reset();
    return factor_in_double();
  }
  double upper = bounds_.upper;
  double value = pass->value();
  const double rounding = pass->value_rounding();
  if (!good()) pass->choose_floor();
  double resolution = pass->resolution();
  double floor = pass->floor();
  gram_.reset();  // gives its memory back
  auto x = pass->apply(a_);
  // Each further pass starts from X, whose small singular values have been lifted by a factor of a thousand.
  for (int passes = 1; value < kPolarQuality * upper; ++passes) {
    if (passes == kMaxPasses) return factor_in_double();
    auto next = ZolotarevPass::solve_finely(GramMatrix(x));
    if (!next) return factor_in_double();
    x = next->apply(x);
    const double product = inner_product(a_, x);
    value = product - rounding;
    resolution *= next->resolution() / floor;
    floor = next->floor();
    // Singular values above the resolution are in [floor, 1]; below it sigma (1 - f) <= resolution / floor f
    // (1 - f), and f (1 - f) <= (1 - f^2) / 2.
    const double unresolved =
        std::max(0.0, x.size(0) - std::pow(at::linalg_vector_norm(x).item<double>(), 2));
    upper = std::min(upper, (product + rounding + resolution * unresolved / 2) / floor);
  }
  if (input_.size(0) > input_.size(1)) x = x.mT();
  return {x.to(input_.scalar_type()), std::ldexp(value, exponent_),
          unscaled({std::max(bounds_.lower, value), upper})};
}

PolarFactor certified_polar(const at::Tensor& a, const PolarOptions& options) {
  const NoAutocastGuard no_autocast;
  check_input(a);
  options.check();
  TORCH_CHECK_VALUE(a.dim() == 2, "[tensorion.polar] expected one matrix, got shape ", a.sizes());
  if (a.numel() == 0) return {at::zeros_like(a), 0, {}};
  const auto method = resolved(options.method, a);
  if (method != "newton_schulz") return single_factor(a.detach(), method);
  NuclearEstimate estimate(a.detach());
  for (int level = 0; level < 3; ++level) estimate.refine();
  auto x = newton_schulz_factor(a.detach(), options);
  const double norm = largest_value(coefficient_schedule(options.ns_coefficients, options.ns_steps));
  const double value = inner_product(a, x) / std::max(1.0, norm);
  return {x, value, estimate.bounds()};
}

at::Tensor polar_scratch(const at::Tensor& a, const PolarOptions& options) {
  const NoAutocastGuard no_autocast;
  check_input(a);
  const auto method = resolved(options.method, a);
  if (a.numel() == 0) return at::zeros_like(a);
  return method == "newton_schulz" ? newton_schulz_factor(a, options) : single_factor(a, method).x;
}

at::Tensor polar(const at::Tensor& a, const PolarOptions& options) {
  const NoAutocastGuard no_autocast;
  check_input(a);
  options.check();
  const auto input = a.detach();
  if (a.numel() == 0) return at::zeros_like(input);
  const auto method = resolved(options.method, a);
  if (method == "newton_schulz") {
    if (a.is_cpu()) largest_entry(input);
    return newton_schulz_factor(input, options).clone();
  }
  if (a.dim() == 2) return single_factor(input, method).x.clone();
  const auto matrices = input.reshape({-1, a.size(-2), a.size(-1)});
  auto out = at::empty_like(matrices, at::MemoryFormat::Contiguous);
  const int64_t count = matrices.size(0), side = std::min(a.size(-2), a.size(-1));
  // Small matrices side by side, large ones one after the other on all threads.
  const bool is_parallel = a.is_cpu() && side < kLargeSide;
  if (method == "svd" || std::max(a.size(-2), a.size(-1)) <= kTinySide) {
    const int64_t group = std::max<int64_t>(1, kBatchElements / (a.size(-2) * a.size(-1)));
    parallel_calls(0, (count + group - 1) / group, is_parallel ? 1 : count, [&](int64_t begin, int64_t end) {
      for (int64_t first = begin * group; first < std::min(count, end * group); first += group) {
        const int64_t length = std::min(group, count - first);
        out.narrow(0, first, length).copy_(svd_factors(matrices.narrow(0, first, length)).x);
      }
    });
  } else {
    parallel_calls(0, count, is_parallel ? 1 : count, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i].copy_(single_factor(matrices[i], method).x);
    });
  }
  return out.reshape(a.sizes());
}

}  // namespace tensorion
