#include "tensorion/gram_matrix.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tensorion/scratch.h"
#include "tensorion/symmetric.h"

namespace tensorion {
namespace {

double epsilon(const at::Tensor& a) { return a.scalar_type() == at::kDouble ? 2.3e-16 : 1.2e-7; }

// A bound of ||a a^T - s||_F / tr s. In single precision no bound for every a is of use: n eps is a hundred
// times what most have. But values that are alike, whose errors all have one sign, do come near to it. So the
// error is measured, in rows that are chosen as they contribute to the trace, and doubled; eps is added for
// the factorization of s.
double relative_rounding(const at::Tensor& a, const at::Tensor& s) {
  if (a.scalar_type() == at::kDouble) return static_cast<double>(a.size(0) + a.size(1)) * epsilon(a);
  constexpr int64_t kRows = 8;
  const auto numbers = a.options().dtype(at::kDouble);
  const auto diagonal = scratch({s.size(0)}, numbers).copy_(s.diagonal());
  auto trace = scratch({s.size(0)}, numbers);
  at::cumsum_out(trace, diagonal, 0);
  const auto steps = at::arange(kRows, numbers).add_(0.5).mul_(trace[-1] / kRows);
  // Ascending, so that the triangle stays a lower one; a row that is most of the trace comes several times.
  const auto chosen = at::searchsorted(trace, steps).clamp_max_(s.size(0) - 1);
  const auto rows = scratch({kRows, a.size(1)}, numbers);
  for (int64_t k = 0; k < kRows; ++k) rows[k].copy_(a[chosen[k].item<int64_t>()]);
  const auto computed = s.index({chosen.unsqueeze(1), chosen.unsqueeze(0)}).to(at::kDouble);
  const auto scales = diagonal.index_select(0, chosen).sqrt_();
  const auto error = (computed - at::mm(rows, rows.mT())) / at::outer(scales, scales);
  const double squares = error.tril(-1).square_().sum().item<double>() / (kRows * (kRows - 1) / 2.0);
  // The diagonal has errors of its own: its terms are squares, of one sign.
  const double own = error.diagonal().square().mean().item<double>();
  const double diagonal_share =
      std::sqrt(at::dot(diagonal, diagonal).item<double>()) / trace[-1].item<double>();
  return epsilon(a) + (squares > 0 ? 2 * std::sqrt(squares) : 0) +
         (own > 0 ? 2 * std::sqrt(own) * diagonal_share : 0);
}

}  // namespace

GramMatrix::GramMatrix(const at::Tensor& a) : matrix(lower_gram(a)) {
  set_moments();
  rounding = relative_rounding(a, matrix) * trace;
  set_bounds();
}

GramMatrix GramMatrix::partial_trace(at::IntArrayRef sizes, const std::vector<bool>& kept) const {
  auto shape = sizes.vec();
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  auto sum = matrix.view(shape);  // what is on or below the diagonal stays there
  int64_t count = 1;
  for (auto mode = static_cast<int64_t>(sizes.size()) - 1; mode >= 0; --mode) {
    if (kept[mode]) continue;
    sum = sum.diagonal(0, mode, mode + sum.dim() / 2).sum(-1);
    count *= sizes[mode];
  }
  GramMatrix result;
  const int64_t side = matrix.size(0) / count;
  result.matrix = sum.reshape({side, side});
  result.set_moments();
  // ||E||_F grows by the root of the count at most; and the sum is rounded, too.
  result.rounding = std::sqrt(static_cast<double>(count)) * rounding + epsilon(matrix) * trace;
  result.set_bounds();
  return result;
}

void GramMatrix::set_moments() {
  const auto moments = lower_moments(matrix);
  trace = moments.trace;
  squares = moments.squares;
}

void GramMatrix::set_bounds() {
  const auto m = static_cast<double>(matrix.size(0));
  // From mean and variance of the m eigenvalues: the largest is largest, and the sum of their roots too,
  // where one is large and the others are equal.
  const double mean = trace / m;
  const double variance = std::max(0.0, squares / m - mean * mean);
  lambda = mean + std::sqrt((m - 1) * variance) + rounding;
  // Near rank one, rounding decides about the others.
  const double high = (trace + rounding) / m;
  const double norm = std::max(0.0, std::sqrt(squares) - rounding);
  const double least = std::max(0.0, norm * norm / m - high * high);
  const double others = m > 1 ? std::max(0.0, high - std::sqrt(least / (m - 1))) : 0;
  nuclear_upper = (std::sqrt(lambda) + (m - 1) * std::sqrt(others)) * (1 + 1e-6);
}

std::optional<ShiftedFactor> GramMatrix::factor(double c) const {
  auto w = copy_lower(matrix);
  w.diagonal().add_(c * lambda);
  const auto log_det = factor_positive_(w);
  if (!log_det) return std::nullopt;
  return ShiftedFactor{w, *log_det - matrix.size(0) * std::log(c * lambda)};
}

}  // namespace tensorion
