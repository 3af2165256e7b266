#include "tensorion/polar/gram_matrix.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tensorion/core/precision.h"
#include "tensorion/polar/gram_rounding.h"
#include "tensorion/polar/positive_definite.h"
#include "tensorion/polar/symmetric.h"

namespace tensorion {

GramMatrix::GramMatrix(const at::Tensor& a) : matrix(lower_gram(a)) {
  set_moments();
  const auto error = gram_rounding(a, matrix);
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

void GramMatrix::subtract(const at::Tensor& a, const at::Tensor& b) {
  const double epsilon = machine_epsilon(matrix.scalar_type());
  // Each element of the result is a sum of 2 k + 1 terms.
  const double sum_rounding = matrix.scalar_type() == at::kDouble
                                  ? 2 * static_cast<double>(a.size(1) + 1) * epsilon * trace
                                  : 2 * epsilon * std::sqrt(squares);
  subtract_products_(matrix, a, b);
  rounding += sum_rounding;
  spectral_rounding += sum_rounding;
  set_moments();
  set_bounds();
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

// Returns the lower triangle of matrix + c lambda I in scratch memory.
at::Tensor GramMatrix::shifted(double c) const {
  auto result = copy_lower(matrix);
  add_to_diagonal_(result, c * lambda);
  return result;
}

double GramMatrix::relative_log_det(double log_det, double c) const {
  return log_det - static_cast<double>(matrix.size(0)) * std::log(c * lambda);
}

std::optional<ShiftedInverse> GramMatrix::inverse(double c) const {
  auto lower = shifted(c);
  const auto log_det = invert_(lower);
  if (!log_det) return std::nullopt;
  return ShiftedInverse{lower, relative_log_det(*log_det, c)};
}

std::optional<double> GramMatrix::log_det(double c) const {
  auto buffer = shifted(c);
  const auto log_det = log_det_(buffer);
  return log_det ? std::optional(relative_log_det(*log_det, c)) : std::nullopt;
}

}  // namespace tensorion
