#include "tensorion/polar/newton_schulz_batch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensorion/polar/polar_factor.h"

namespace tensorion {
namespace {

// Lower limits of divisors, so that zero matrices stay zero.
constexpr double kMinSquaredNorm = 1e-30;
constexpr double kMinLargestElement = std::numeric_limits<float>::min();

// Returns x after two steps with the polynomials p1 and p2, given r = x x^T. The product p2 p1 is an m x m
// matrix. Multiples of the identity are never added to a matrix in half precision, which would lose its small
// elements. They are added in the accumulators of the products instead.
at::Tensor two_steps(const at::Tensor& x, const at::Tensor& r, const std::array<double, 3>& first,
                     const std::array<double, 3>& second) {
  const auto& [a1, b1, c1] = first;
  const auto& [a2, b2, c2] = second;
  const auto z1 = at::baddbmm(r, r, r, b1, c1);          // p1 = a1 I + z1
  const auto half = at::baddbmm(r, z1, r, a1, 1);        // p1 r
  const auto r2 = at::baddbmm(half, half, z1, a1, 1);    // p1 r p1
  const auto z2 = at::baddbmm(r2, r2, r2, b2, c2);       // p2 = a2 I + z2
  auto w = at::baddbmm(z1, z2, z1, a2, 1).add_(z2, a1);  // p2 p1 = a1 a2 I + w
  return at::baddbmm(x, w, x, a1 * a2, 1);
}

at::Tensor one_step(const at::Tensor& x, const at::Tensor& r, const std::array<double, 3>& row) {
  const auto& [a, b, c] = row;
  return at::baddbmm(x, at::baddbmm(r, r, r, b, c), x, a, 1);
}

}  // namespace

at::ScalarType iteration_dtype(const Coefficients& steps) {
  // The rounding error of fp16, with a margin for the accumulation of errors.
  constexpr double kError = 4 * 0x1p-11;
  constexpr int kPoints = 2000;
  double largest = 0, exact = 0;
  for (int i = 0; i <= kPoints; ++i) {
    double x = static_cast<double>(i) / kPoints, y = x;
    for (const auto& [a, b, c] : steps) {
      x *= a + x * x * (b + c * x * x);
      y *= 1 + kError;
      y *= a + y * y * (b + c * y * y);
    }
    exact = std::max(exact, std::abs(x));
    largest = std::max(largest, std::abs(y));
  }
  // If the polynomials do not converge to 1, as those of Muon, errors grow from step to step.
  const bool diverges = exact > 1.1 && steps.size() > 6;
  return largest < 1.02 * exact && !diverges ? at::kHalf : at::kFloat;
}

double half_precision_margin(int64_t n) {
  constexpr double kLargestSquares = 1 << 14;
  return std::max(1.0, std::sqrt(static_cast<double>(n) / kLargestSquares));
}

NewtonSchulzBatch newton_schulz_batch(const at::Tensor& x, const NewtonSchulzSchedule& schedule,
                                      bool with_attained) {
  auto r = at::bmm(x, x.mT());
  const auto squares = squared_norms(r, schedule.normalization).clamp_min_(kMinSquaredNorm);
  r.div_(squares);
  x.mul_(squares.rsqrt());
  auto y = x;
  // Two plain steps need 4 m^2 n + 2 m^3 multiplications, and two combined steps 2 m^2 n + 5 m^3. This is
  // less if n > 1.5 m, but needs more kernel launches.
  const bool wide = x.size(-1) > 2 * x.size(-2);
  const auto& steps = schedule.steps;
  for (size_t i = 0; i < steps.size();) {
    if (i > 0) r = at::bmm(y, y.mT());
    if (wide && i + 1 < steps.size()) {
      y = two_steps(y, r, steps[i], steps[i + 1]);
      i += 2;
    } else {
      y = one_step(y, r, steps[i]);
      i += 1;
    }
  }
  if (!with_attained) return {y, {}};
  const auto products = at::bmm(x.view({x.size(0), 1, -1}), y.view({x.size(0), -1, 1}));
  return {y, (products * squares.sqrt()).view(-1)};
}

at::Tensor newton_schulz_on_device(const at::Tensor& a, const NewtonSchulzSchedule& schedule) {
  const bool tall = a.size(-2) > a.size(-1);
  const auto wide = tall ? a.mT() : a;
  const auto m = wide.size(-2), n = wide.size(-1);
  const auto x = wide.reshape({-1, m, n}).to(compute_type(a));
  const auto largest =
      at::linalg_vector_norm(x, INFINITY, at::IntArrayRef{-2, -1}, true).clamp_min(kMinLargestElement);
  const auto scaled = x.div(largest.mul_(half_precision_margin(n))).to(iteration_dtype(schedule.steps));
  const auto y = newton_schulz_batch(scaled, schedule).x.to(a.scalar_type()).view(wide.sizes());
  return tall ? y.mT() : y;
}

}  // namespace tensorion
