#include "tensorion/polar/newton_schulz.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tensorion/core/gemm.h"
#include "tensorion/core/precision.h"
#include "tensorion/core/scratch_arena.h"
#include "tensorion/polar/polar_factor.h"
#include "tensorion/polar/symmetric.h"

namespace tensorion {
namespace {

// The number of steps that are combined for wide matrices: fewer at first, because the polynomials of the
// first steps are the worst conditioned.
constexpr size_t kFirstCombinedSteps = 2;
constexpr size_t kCombinedSteps = 3;

// Default numbers of steps. The published coefficients were made for five.
constexpr int64_t kPublishedSteps = 5;
constexpr int64_t kDeviceSteps = 6;

// Returns a I + b r + c r^2.
at::Tensor polynomial(const at::Tensor& r, const std::array<double, 3>& row) {
  auto p = commuting_product(r, r, row[2], row[1], r);
  p.diagonal(0, -2, -1).add_(row[0]);
  return p;
}

// Returns the product p_{last-1} ... p_first of the polynomials of steps [first, last), given r = x x^T
// before step `first`.
at::Tensor combined_polynomial(at::Tensor r, const Coefficients& schedule, size_t first, size_t last) {
  at::Tensor q;
  for (size_t i = first; i < last; ++i) {
    const auto p = polynomial(r, schedule[i]);
    q = i == first ? p : commuting_product(q, p);
    if (i + 1 < last) r = commuting_product(p, commuting_product(p, r));
  }
  return q;
}

at::Tensor product(const at::Tensor& q, const at::Tensor& x) {
  if (x.dim() != 2) return at::matmul(q, x);
  auto out = scratch(x.sizes(), x.options());
  gemm_out(out, q, x);
  return out;
}

at::Tensor replace_zero_by_one(const at::Tensor& scale) {
  return at::where(scale > 0, scale, at::ones_like(scale));
}

// Returns true if no squares of elements overflowed or underflowed (see kModerateSquares).
bool is_moderate(const at::Tensor& squared_norms) {
  return ((squared_norms > 1 / kModerateSquares) & (squared_norms < kModerateSquares)).all().item<bool>();
}

}  // namespace

at::Tensor squared_norms(const at::Tensor& r, Normalization normalization) {
  const auto dtype = compute_type(r);
  return normalization == Normalization::kSchatten4
             ? at::linalg_vector_norm(r, 2, at::IntArrayRef{-2, -1}, /*keepdim=*/true, dtype)
             : r.diagonal(0, -2, -1).sum(-1, /*keepdim=*/true, dtype).unsqueeze(-1);
}

NewtonSchulzSchedule newton_schulz_schedule(const PolarOptions& options, c10::DeviceType device) {
  if (device == c10::kCPU || options.ns_coefficients) {
    return {coefficient_schedule(options.ns_coefficients.value_or(named_coefficients("muon")),
                                 options.ns_steps.value_or(kPublishedSteps)),
            Normalization::kFrobenius};
  }
  return {polar_express_schedule(options.ns_steps.value_or(kDeviceSteps)), Normalization::kSchatten4};
}

at::Tensor newton_schulz(const at::Tensor& x, const NewtonSchulzSchedule& schedule) {
  const auto& steps = schedule.steps;
  auto y = x;
  auto r = gram(y);
  if (!is_moderate(squared_norms(r, Normalization::kFrobenius))) {
    y = x / replace_zero_by_one(x.abs().amax({-2, -1}, true));
    r = gram(y);
  }
  // The normalized matrix y / ||y|| is not formed. Instead, the first product q is divided by the norm.
  const auto squares = replace_zero_by_one(squared_norms(r, schedule.normalization));
  r = r / squares;
  // With symmetric products, five plain steps cost 15 m^2 n + 5 m^3, and five combined steps 6 m^2 n + 14
  // m^3.
  const bool wide = 2 * x.size(-1) > 3 * x.size(-2);
  for (size_t first = 0, last = 0; first < steps.size(); first = last) {
    if (first > 0) r = gram(y);
    last = std::min(steps.size(), first + (!wide ? 1 : first == 0 ? kFirstCombinedSteps : kCombinedSteps));
    const auto q = combined_polynomial(r, steps, first, last);
    y = product(first == 0 ? q.div_(squares.sqrt()) : q, y);
  }
  return y;
}

}  // namespace tensorion
