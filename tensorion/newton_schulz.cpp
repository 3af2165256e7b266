#include "tensorion/newton_schulz.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tensorion/symmetric.h"

namespace tensorion {
namespace {

// Steps between restarts: two at first, where the factors are worst conditioned, then three.
constexpr size_t kFirstRun = 2;
constexpr size_t kRun = 3;

// p = a I + b r + c r^2.
at::Tensor polynomial(const at::Tensor& r, const std::array<double, 3>& row) {
  auto p = commuting_product(r, r);
  p.mul_(row[2]).add_(r, row[1]);
  p.diagonal(0, -2, -1).add_(row[0]);
  return p;
}

// Steps [first, last) in the Gram domain: x <- p_{last-1} ... p_first x.
at::Tensor gram_steps(const at::Tensor& x, const Coefficients& schedule, size_t first, size_t last) {
  auto r = gram(x);
  at::Tensor q;
  for (size_t i = first; i < last; ++i) {
    const auto p = polynomial(r, schedule[i]);
    q = i == first ? p : commuting_product(q, p);
    if (i + 1 < last) r = commuting_product(p, commuting_product(p, r));
  }
  return at::matmul(q, x);
}

}  // namespace

at::Tensor newton_schulz(const at::Tensor& x, const Coefficients& schedule) {
  // The largest entry first: squares of very small or large entries would leave the range of the dtype.
  const auto nonzero = [](const at::Tensor& scale) {
    return at::where(scale > 0, scale, at::ones_like(scale));
  };
  auto y = x / nonzero(x.abs().amax({-2, -1}, true));
  y.div_(nonzero(at::linalg_vector_norm(y, 2, {-2, -1}, true)));
  // Five plain steps cost 15 m^2 n + 5 m^3 in symmetric products, five in the Gram domain 6 m^2 n + 14 m^3.
  if (2 * x.size(-1) <= 3 * x.size(-2)) {
    for (const auto& row : schedule) y = at::matmul(polynomial(gram(y), row), y);
    return y;
  }
  for (size_t first = 0, last = kFirstRun; first < schedule.size(); first = last, last += kRun) {
    y = gram_steps(y, schedule, first, std::min(schedule.size(), last));
  }
  return y;
}

}  // namespace tensorion
