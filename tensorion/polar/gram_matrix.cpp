#include "tensorion/polar/gram_matrix.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tensorion/core/precision.h"
#include "tensorion/core/scratch_arena.h"
#include "tensorion/polar/symmetric.h"

namespace tensorion {
namespace {

// Norms of an error, relative to a trace.
struct RelativeError {
  double frobenius;
  double spectral;
};

// Of so many rows an error is measured.
constexpr int64_t kSampledRows = 8;

// The products of these rows of a with each other, in double precision.
at::Tensor exact_products(const at::Tensor& a, const at::Tensor& rows) {
  const auto options = a.options().dtype(at::kDouble);
  const int64_t count = rows.size(0), n = a.size(1), width = std::min<int64_t>(n, 1 << 13);
  auto products = at::zeros({count, count}, options);
  const auto sample = scratch({count, width}, a.options());
  const auto buffer = scratch({count, width}, options);
  for (int64_t first = 0; first < n; first += width) {
    const int64_t length = std::min(width, n - first);
    auto part = sample.view(-1).narrow(0, 0, count * length).view({count, length});
    at::index_select_out(part, a.narrow(1, first, length), 0, rows);
    const auto wide = buffer.view(-1).narrow(0, 0, count * length).view({count, length}).copy_(part);
    products.addmm_(wide, wide.mT());
  }
  return products;
}

double root_mean_square(const at::Tensor& x) { return std::sqrt(x.square().mean().item<double>()); }

// A NaN, as matrices that are zero or not finite give, counts as nothing: they are looked at elsewhere.
double number(double x) { return x > 0 ? x : 0; }

// Estimates the norms of s - a a^T, relative to tr s. In single precision no bound for every a is of use: n
// eps is a hundred times what most have. But values that are alike, whose errors all have one sign, do come
// near to it. So the error is measured in double precision and doubled; eps is added for the factorizations
// of s.
RelativeError relative_rounding(const at::Tensor& a, const at::Tensor& s) {
  const double epsilon = machine_epsilon(a.scalar_type());
  const int64_t m = s.size(0);
  if (a.scalar_type() == at::kDouble) {
    const double bound = static_cast<double>(m + a.size(1)) * epsilon;
    return {bound, bound};
  }
  const auto options = a.options().dtype(at::kDouble);
  const auto diagonal = scratch({m}, options).copy_(s.diagonal());
  if (m <= kSampledRows) {
    const auto error = (s - exact_products(a, at::arange(m, a.options().dtype(at::kLong)))).tril();
    const double squares =
        2 * error.square().sum().item<double>() - error.diagonal().square().sum().item<double>();
    const double all = epsilon + number(std::sqrt(squares) / diagonal.sum().item<double>());
    return {all, all};
  }
  // Rows are chosen as they contribute to the trace; one that is most of it comes several times. They ascend,
  // so that the triangle stays a lower one.
  auto cumulated = scratch({m}, options);
  at::cumsum_out(cumulated, diagonal, 0);
  const double trace = cumulated[-1].item<double>();
  const auto steps = at::arange(kSampledRows, options).add_(0.5).mul_(trace / kSampledRows);
  const auto rows = at::searchsorted(cumulated, steps).clamp_max_(m - 1);
  const auto scales = diagonal.index_select(0, rows).sqrt_();
  const auto error =
      (s.index({rows.unsqueeze(1), rows.unsqueeze(0)}).to(at::kDouble) - exact_products(a, rows))
          .div_(at::outer(scales, scales));
  const auto pairs = at::tril_indices(kSampledRows, kSampledRows, -1, at::kLong);
  const auto off_diagonal = error.index({pairs[0], pairs[1]});
  const double spread = number(root_mean_square(off_diagonal));
  // A mean that is no accident of the sample belongs to a matrix of rank one, whose norms are equal; the rest
  // is taken as random, where the spectral norm is 2 / sqrt(m) of the other.
  const double mean = std::abs(off_diagonal.mean().item<double>());
  const double bias = number(mean - 2 * spread / std::sqrt(static_cast<double>(off_diagonal.numel())));
  // The diagonal has errors of its own: its terms are squares, of one sign.
  const double own = number(root_mean_square(error.diagonal()));
  const double diagonal_share = number(std::sqrt(at::dot(diagonal, diagonal).item<double>()) / trace);
  const double largest_share = number(diagonal.max().item<double>() / trace);
  const double frobenius = epsilon + 2 * spread + 2 * own * diagonal_share;
  const double spectral =
      2 * (epsilon + 2 * spread) / std::sqrt(static_cast<double>(m)) + 2 * bias + 2 * own * largest_share;
  return {frobenius, std::min(frobenius, spectral)};
}

}  // namespace

GramMatrix::GramMatrix(const at::Tensor& a) : matrix(lower_gram(a)) {
  set_moments();
  const auto error = relative_rounding(a, matrix);
  rounding = error.frobenius * trace;
  spectral_rounding = error.spectral * trace;
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
  // ||E||_F grows by the root of the count at most, ||E||_2 by the count; and the sum is rounded, too.
  const double own = machine_epsilon(matrix.scalar_type()) * trace;
  result.rounding = std::sqrt(static_cast<double>(count)) * rounding + own;
  result.spectral_rounding = std::min(result.rounding, static_cast<double>(count) * spectral_rounding + own);
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
  const double largest = mean + std::sqrt((m - 1) * variance);
  const auto upper = [&](double error) {
    // Near rank one, rounding decides about the others.
    const double high = (trace + error) / m;
    const double norm = std::max(0.0, std::sqrt(squares) - error);
    const double least = std::max(0.0, norm * norm / m - high * high);
    const double others = m > 1 ? std::max(0.0, high - std::sqrt(least / (m - 1))) : 0;
    return (std::sqrt(largest + error) + (m - 1) * std::sqrt(others)) * (1 + 1e-6);
  };
  lambda = largest + rounding;
  nuclear_upper = upper(rounding);
  upper_rounding = nuclear_upper - upper(0);
}

SpectrumMoments GramMatrix::moments() const {
  return {static_cast<double>(matrix.size(0)), trace / lambda, squares / (lambda * lambda), {}};
}

std::optional<double> GramMatrix::inverse_growth(double c, double error, double least) const {
  const double share = error / ((c + least) * lambda);
  return share <= 0.5 ? std::optional(1 / (1 - share)) : std::nullopt;
}

std::optional<ShiftedFactor> GramMatrix::factor(double c) const {
  auto w = copy_lower(matrix);
  w.diagonal().add_(c * lambda);
  const auto log_det = factor_positive_(w);
  if (!log_det) return std::nullopt;
  return ShiftedFactor{w, *log_det - matrix.size(0) * std::log(c * lambda)};
}

}  // namespace tensorion
