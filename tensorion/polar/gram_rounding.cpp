#include "tensorion/polar/gram_rounding.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "tensorion/core/precision.h"

// Plain loops, because the operators of ATen that do the same would take longer than the Gram matrix of a
// small matrix.
namespace tensorion {
namespace {

// The number of rows from which the error in single precision is estimated.
constexpr int64_t kSampledRows = 8;

using SampleMatrix = std::array<std::array<double, kSampledRows>, kSampledRows>;

double inner_product(const double* x, const double* y, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

// Returns the lower triangle of s - a a^T for these rows, which ascend. The products are computed in double
// precision.
SampleMatrix sampled_error(const at::Tensor& a, const at::Tensor& s, const std::vector<int64_t>& rows) {
  constexpr int64_t kWidth = 512;  // The buffer stays in the cache.
  std::array<std::array<double, kWidth>, kSampledRows> buffer;
  const auto count = static_cast<int64_t>(rows.size()), n = a.size(1);
  const int64_t row_stride = a.stride(0), col_stride = a.stride(1);
  const auto* const data = a.const_data_ptr<float>();
  SampleMatrix products{};
  for (int64_t first = 0; first < n; first += kWidth) {
    const int64_t length = std::min(kWidth, n - first);
    for (int64_t i = 0; i < count; ++i) {
      const float* row = data + rows[i] * row_stride + first * col_stride;
      for (int64_t k = 0; k < length; ++k) buffer[i][k] = row[k * col_stride];
    }
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        products[i][j] += inner_product(buffer[i].data(), buffer[j].data(), length);
      }
    }
  }
  const auto* const computed = s.const_data_ptr<float>();
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j <= i; ++j)
      products[i][j] = computed[rows[i] * s.stride(0) + rows[j] * s.stride(1)] - products[i][j];
  }
  return products;
}

// Returns rows in ascending order, chosen in proportion to their share of the trace, so a dominant row may
// occur several times.
std::vector<int64_t> sample_rows(const std::vector<double>& diagonal) {
  std::vector<double> cumulative(diagonal.size());
  std::partial_sum(diagonal.begin(), diagonal.end(), cumulative.begin());
  std::vector<int64_t> rows;
  for (int64_t k = 0; k < kSampledRows; ++k) {
    const double target = (static_cast<double>(k) + 0.5) * cumulative.back() / kSampledRows;
    const auto row = std::lower_bound(cumulative.begin(), cumulative.end(), target) - cumulative.begin();
    rows.push_back(std::min<int64_t>(row, static_cast<int64_t>(diagonal.size()) - 1));
  }
  return rows;
}

// Returns max(x, 0), and 0 for NaN. NaN occurs if the matrix is zero or not finite, which the caller handles.
double positive_part(double x) { return x > 0 ? x : 0; }

// Returns the norms for a matrix with so few rows that the error of all of them can be computed.
GramRounding rounding_of_all_rows(const at::Tensor& a, const at::Tensor& s, double trace) {
  std::vector<int64_t> rows(s.size(0));
  std::iota(rows.begin(), rows.end(), 0);
  const auto error = sampled_error(a, s, rows);
  double squares = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = 0; j <= i; ++j) squares += (i == j ? 1 : 2) * error[i][j] * error[i][j];
  }
  const double frobenius = machine_epsilon(at::kFloat) + positive_part(std::sqrt(squares) / trace);
  return {frobenius, frobenius};
}

}  // namespace

// In single precision the a priori bound n eps is useless, because it is a hundred times the error of a
// typical matrix. But it is nearly attained if all elements are similar, because then all rounding errors
// have the same sign. So the error of a sample of rows is computed in double precision and multiplied by 2.
// One eps is added for the backward error of the factorizations of s.
GramRounding gram_rounding(const at::Tensor& a, const at::Tensor& s) {
  const double epsilon = machine_epsilon(a.scalar_type());
  const int64_t m = s.size(0);
  if (a.scalar_type() == at::kDouble) {
    const double bound = static_cast<double>(m + a.size(1)) * epsilon;
    return {bound, bound};
  }
  std::vector<double> diagonal(m);
  const auto* const computed = s.const_data_ptr<float>();
  for (int64_t i = 0; i < m; ++i) diagonal[i] = computed[i * (s.stride(0) + s.stride(1))];
  const double trace = std::accumulate(diagonal.begin(), diagonal.end(), 0.0);
  if (m <= kSampledRows) return rounding_of_all_rows(a, s, trace);
  const auto rows = sample_rows(diagonal);
  const auto error = sampled_error(a, s, rows);
  double sum = 0, off_diagonal_squares = 0, diagonal_squares = 0;  // of errors relative to the diagonal of s
  for (int64_t i = 0; i < kSampledRows; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      const double relative = error[i][j] / std::sqrt(diagonal[rows[i]] * diagonal[rows[j]]);
      if (i == j) {
        diagonal_squares += relative * relative;
      } else {
        sum += relative;
        off_diagonal_squares += relative * relative;
      }
    }
  }
  constexpr double kPairs = kSampledRows * (kSampledRows - 1) / 2.0;
  const double spread = positive_part(std::sqrt(off_diagonal_squares / kPairs));
  // Model the off-diagonal error as a matrix of rank one plus a random matrix. The rank-one part is the mean,
  // as far as it is statistically significant; its spectral norm is equal to its Frobenius norm. The spectral
  // norm of the random part is 2 / sqrt(m) times its Frobenius norm.
  const double bias = positive_part(std::abs(sum / kPairs) - 2 * spread / std::sqrt(kPairs));
  // The errors of the diagonal are measured separately. They are larger, because the diagonal sums squares,
  // which all have the same sign.
  const double diagonal_error = positive_part(std::sqrt(diagonal_squares / kSampledRows));
  const double norm = std::sqrt(inner_product(diagonal.data(), diagonal.data(), m));
  const double diagonal_share = positive_part(norm / trace);
  const double largest_share = positive_part(*std::max_element(diagonal.begin(), diagonal.end()) / trace);
  const double frobenius = epsilon + 2 * spread + 2 * diagonal_error * diagonal_share;
  const double spectral = 2 * (epsilon + 2 * spread) / std::sqrt(static_cast<double>(m)) + 2 * bias +
                          2 * diagonal_error * largest_share;
  return {frobenius, std::min(frobenius, spectral)};
}

}  // namespace tensorion
