#include "tensorion/polar.h"

#include <ATen/ATen.h>

#include <cmath>

#include "tensorion/elementwise.h"
#include "tensorion/lone_lapack.h"
#include "tensorion/newton_schulz.h"
#include "tensorion/parallel.h"
#include "tensorion/zolotarev.h"

namespace tensorion {
namespace {

constexpr int kMaxPasses = 4;

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

// U V^T of the compact SVD: directions whose singular value is rounding noise are left out.
PolarFactor svd_factor(const at::Tensor& a) {
  auto work = a.to(compute_type(a));
  const double largest = largest_entry(work);
  if (largest == 0) return {at::zeros_like(a), 0, {}};
  const int exponent = std::ilogb(largest);
  work = scaled(work, -exponent);
  const LoneLapack lone;
  const auto [u, s, vh] = at::linalg_svd(work, /*full_matrices=*/false);
  const double epsilon = work.scalar_type() == at::kDouble ? 2.3e-16 : 1.2e-7;
  const double side = static_cast<double>(std::max(a.size(0), a.size(1)));
  const auto kept = (s > s[0] * (side * epsilon)).to(s.scalar_type());
  const auto x = at::mm(u * kept, vh);
  // The sum of s has all the rounding of the algorithm; <A, X>, which the polar factor maximizes, the square
  // of it.
  const double product = inner_product(work, x);
  const double noise = (s * (1 - kept)).sum(at::kDouble).item<double>();
  const double slack = product * epsilon * std::sqrt(side);
  const double value = std::ldexp(product - slack, exponent);
  return {x.to(a.scalar_type()), value, {value, std::ldexp(product + noise + slack, exponent)}};
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
  a_ = (a.size(0) > a.size(1) ? a.mT() : a).to(compute_type(a));
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
  bounds_ = likely_ = {0, std::ldexp(gram_->nuclear_upper, exponent_)};
}

// `bounds`: of a_. Where bounds of several kinds nearly meet, rounding must not let them pass each other.
void NuclearEstimate::narrow(const NuclearBounds& bounds) {
  bounds_.upper = std::max(bounds_.lower, std::min(bounds_.upper, std::ldexp(bounds.upper, exponent_)));
  bounds_.lower = std::clamp(std::ldexp(bounds.lower, exponent_), bounds_.lower, bounds_.upper);
}

bool NuclearEstimate::refine() {
  if (!gram_ || exact_) return false;
  ++refinements_;
  auto& gram = *gram_;
  if (!determinants_) {
    if (a_.defined()) trace_error_ = std::abs(inner_product(a_, a_) - gram.trace);
    determinants_.emplace(gram, trace_error_);
  }
  auto& determinants = *determinants_;
  if (determinants.refine(gram)) {
    narrow(determinants.bounds());
    const auto& likely = determinants.likely();
    likely_ = {std::ldexp(likely.lower, exponent_), std::ldexp(likely.upper, exponent_)};
  } else if (a_.defined()) {
    compute_eigenvalues(gram.trace);
  } else {
    return false;
  }
  return true;
}

NuclearEstimate NuclearEstimate::partial_trace(at::IntArrayRef sizes, const std::vector<bool>& kept) const {
  NuclearEstimate part;
  if (!gram_) return part;
  part.exponent_ = exponent_;
  part.gram_ = gram_->partial_trace(sizes, kept);
  part.trace_error_ = trace_error_;
  part.bounds_ = part.likely_ = {0, std::ldexp(part.gram_->nuclear_upper, exponent_)};
  return part;
}

void NuclearEstimate::compute_eigenvalues(double trace) {
  exact_ = true;
  const auto wide = a_.to(at::kDouble);
  const auto m = static_cast<double>(wide.size(0));
  constexpr int64_t kSmall = 256;
  const LoneLapack lone;
  const auto values = wide.size(0) <= kSmall
                          ? at::linalg_svdvals(wide)
                          : at::linalg_eigvalsh(at::mm(wide, wide.mT())).clamp_min_(0).sqrt_();
  const double norm = values.sum().item<double>();
  // E added to the Gram matrix moves the sum of the roots by m^(3/4) ||E||_F^(1/2) at most.
  const double rounding = (m + static_cast<double>(wide.size(1))) * 2.3e-16 * trace;
  const double slack = std::pow(m, 0.75) * std::sqrt(rounding);
  narrow({norm - slack, norm + slack});
  likely_ = {std::ldexp(norm * (1 - 1e-12), exponent_), std::ldexp(norm * (1 + 1e-12), exponent_)};
}

PolarFactor NuclearEstimate::factor() {
  if (!gram_) return {at::zeros_like(input_), 0, {}};
  auto& gram = *gram_;
  auto pass = ZolotarevPass::solve(gram);
  if (!pass) return svd_factor(input_);
  narrow(pass->nuclear_norm());
  const auto good = [&] { return std::ldexp(pass->value(), exponent_) >= kPolarQuality * bounds_.upper; };
  while (!good() && pass->refine(gram)) narrow(pass->nuclear_norm());
  double upper = std::ldexp(bounds_.upper, -exponent_);
  double value = pass->value();
  const double rounding = pass->value_rounding();
  if (!good()) pass->choose_floor();
  double resolution = pass->resolution();
  double floor = pass->floor();
  gram_.reset();  // gives its memory back
  auto x = pass->apply(a_);
  // Each further pass starts from X, whose small singular values have been lifted by a factor of a thousand.
  for (int passes = 1; value < kPolarQuality * upper; ++passes) {
    if (passes == kMaxPasses) return svd_factor(input_);
    auto next = ZolotarevPass::solve_finely(GramMatrix(x));
    if (!next) return svd_factor(input_);
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
  return {x.to(input_.scalar_type()),
          std::ldexp(value, exponent_),
          {std::max(bounds_.lower, std::ldexp(value, exponent_)), std::ldexp(upper, exponent_)}};
}

PolarFactor certified_polar(const at::Tensor& a, const PolarOptions& options) {
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
  check_input(a);
  const auto method = resolved(options.method, a);
  if (a.numel() == 0) return at::zeros_like(a);
  return method == "newton_schulz" ? newton_schulz_factor(a, options) : single_factor(a, method).x;
}

at::Tensor polar(const at::Tensor& a, const PolarOptions& options) {
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
  const auto solve = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i].copy_(single_factor(matrices[i], method).x);
  };
  // Small matrices side by side, large ones one after the other on all threads.
  const int64_t side = std::min(a.size(-2), a.size(-1));
  parallel_calls(0, matrices.size(0), side < 256 ? 1 : matrices.size(0), solve);
  return out.reshape(a.sizes());
}

}  // namespace tensorion
