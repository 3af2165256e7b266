#include "tensorion/polar/gram_matrix.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tensorion/core/precision.h"
#include "tensorion/core/scratch_arena.h"
#include "tensorion/polar/symmetric.h"

namespace tensorion {
namespace {

// Norms of the error E = s - a a^T, divided by tr s.
struct RelativeError {
  double frobenius;
  double spectral;
};

// The number of rows from which the error in single precision is estimated.
constexpr int64_t kSampledRows = 8;

// Returns the Gram matrix of these rows of a, computed in double precision.
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

// Returns max(x, 0), and 0 for NaN. NaN occurs if the matrix is zero or not finite, which the caller handles.
double positive_part(double x) { return x > 0 ? x : 0; }

// Bounds (fp64) or estimates (fp32) the norms of E = s - a a^T, relative to tr s. In single precision the a
// priori bound n eps is useless, because it is a hundred times the error of a typical matrix. But it is
// nearly attained if all elements are similar, because then all rounding errors have the same sign. So the
// error of a sample of rows is computed in double precision and multiplied by 2. One eps is added for the
// backward error of the factorizations of s.
RelativeError relative_rounding(const at::Tensor& a, const at::Tensor& s) {
  const double epsilon = machine_epsilon(a.scalar_type());
  const int64_t m = s.size(0);
  if (a.scalar_type() == at::kDouble) {
    const double bound = static_cast<double>(m + a.size(1)) * epsilon;
    return {bound, bound};
  }
  const auto options = a.options().dtype(at::kDouble);
  const auto diagonal = scratch({m}, options).copy_(s.diagonal());
  if (m <= kSampledRows) {  // The error of all rows can be computed.
    const auto error = (s - exact_products(a, at::arange(m, a.options().dtype(at::kLong)))).tril();
    const double squares =
        2 * error.square().sum().item<double>() - error.diagonal().square().sum().item<double>();
    const double frobenius = epsilon + positive_part(std::sqrt(squares) / diagonal.sum().item<double>());
    return {frobenius, frobenius};
  }
  // Sample rows in proportion to their share of the trace, so a dominant row may occur several times. The
  // indices ascend, so the sampled elements are in the lower triangle of s.
  auto cumulative_trace = scratch({m}, options);
  at::cumsum_out(cumulative_trace, diagonal, 0);
  const double trace = cumulative_trace[-1].item<double>();
  const auto targets = at::arange(kSampledRows, options).add_(0.5).mul_(trace / kSampledRows);
  const auto rows = at::searchsorted(cumulative_trace, targets).clamp_max_(m - 1);
  const auto scales = diagonal.index_select(0, rows).sqrt_();
  const auto error =
      (s.index({rows.unsqueeze(1), rows.unsqueeze(0)}).to(at::kDouble) - exact_products(a, rows))
          .div_(at::outer(scales, scales));
  const auto pairs = at::tril_indices(kSampledRows, kSampledRows, -1, at::kLong);
  const auto off_diagonal = error.index({pairs[0], pairs[1]});
  const double spread = positive_part(root_mean_square(off_diagonal));
  // Model the off-diagonal error as a matrix of rank one plus a random matrix. The rank-one part is the mean,
  // as far as it is statistically significant; its spectral norm is equal to its Frobenius norm. The spectral
  // norm of the random part is 2 / sqrt(m) times its Frobenius norm.
  const double mean = std::abs(off_diagonal.mean().item<double>());
  const double bias = positive_part(mean - 2 * spread / std::sqrt(static_cast<double>(off_diagonal.numel())));
  // The errors of the diagonal are measured separately. They are larger, because the diagonal sums squares,
  // which all have the same sign.
  const double diagonal_error = positive_part(root_mean_square(error.diagonal()));
  const double diagonal_share = positive_part(std::sqrt(at::dot(diagonal, diagonal).item<double>()) / trace);
  const double largest_share = positive_part(diagonal.max().item<double>() / trace);
  const double frobenius = epsilon + 2 * spread + 2 * diagonal_error * diagonal_share;
  const double spectral = 2 * (epsilon + 2 * spread) / std::sqrt(static_cast<double>(m)) + 2 * bias +
                          2 * diagonal_error * largest_share;
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
  auto sum = matrix.view(shape);  // Partial traces of the lower triangle stay in the lower triangle.
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
  // A partial trace over `count` blocks multiplies ||E||_F by at most sqrt(count), and ||E||_2 by at most
  // count. In addition, the sum is rounded.
  const double sum_rounding = machine_epsilon(matrix.scalar_type()) * trace;
  result.rounding = std::sqrt(static_cast<double>(count)) * rounding + sum_rounding;
  result.spectral_rounding =
      std::min(result.rounding, static_cast<double>(count) * spectral_rounding + sum_rounding);
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
  // Given the mean and the variance of m eigenvalues, both the largest eigenvalue and the sum of the square
  // roots are maximal if m - 1 eigenvalues are equal and one is larger.
  const double mean = trace / m;
  const double variance = std::max(0.0, squares / m - mean * mean);
  const double largest = mean + std::sqrt((m - 1) * variance);
  // Returns the bound of ||A||_* if ||E||_F <= error. Near rank one, E dominates the small eigenvalues.
  const auto upper = [&](double error) {
    const double max_mean = (trace + error) / m;
    const double norm = std::max(0.0, std::sqrt(squares) - error);
    const double min_variance = std::max(0.0, norm * norm / m - max_mean * max_mean);
    const double others = m > 1 ? std::max(0.0, max_mean - std::sqrt(min_variance / (m - 1))) : 0;
    return (std::sqrt(largest + error) + (m - 1) * std::sqrt(others)) * (1 + 1e-6);
  };
  lambda = largest + rounding;
  nuclear_upper = upper(rounding);
  upper_rounding = nuclear_upper - upper(0);
}

SpectrumMoments GramMatrix::moments() const {
  return {static_cast<double>(matrix.size(0)), trace / lambda, squares / (lambda * lambda), {}};
}

std::optional<double> GramMatrix::inverse_growth(double c, double error, double min_eigenvalue) const {
  const double ratio = error / ((c + min_eigenvalue) * lambda);
  return ratio <= 0.5 ? std::optional(1 / (1 - ratio)) : std::nullopt;
}

std::optional<ShiftedFactor> GramMatrix::factor(double c) const {
  auto shifted = copy_lower(matrix);
  shifted.diagonal().add_(c * lambda);
  const auto log_det = cholesky_(shifted);
  if (!log_det) return std::nullopt;
  return ShiftedFactor{shifted, *log_det - matrix.size(0) * std::log(c * lambda)};
}

}  // namespace tensorion
