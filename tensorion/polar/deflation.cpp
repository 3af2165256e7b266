#include "tensorion/polar/deflation.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>

#include "tensorion/core/gemm.h"
#include "tensorion/core/mkl_single_thread_guard.h"
#include "tensorion/core/precision.h"
#include "tensorion/polar/symmetric.h"

namespace tensorion {
namespace {

// For smaller matrices, an inverse costs less than the products with V.
constexpr int64_t kMinSide = 512;
// The ratio of the largest eigenvalue of A A^T (its bound) to the mean above which two poles rarely suffice.
// It is 170 to 540 for balanced 3 x 3 kernels of ResNet-18 with 256 and 512 channels, and 1 + m / sqrt(n) for
// Gaussian m x n matrices.
constexpr double kMinRatio = 150;
// The number of columns of V is m divided by this number. With 48, the 512 x 512 x 3 x 3 kernel that is the
// most difficult one does not reach the target quality with two poles. With 24, a step takes 1 to 2 % longer.
constexpr int64_t kRowsPerColumn = 32;
// The number of subspace iterations. With one, the removed part has a quality of 0.95 instead of 0.99.
constexpr int kIterations = 2;

// Returns a matrix of pseudorandom signs, the same in each call.
at::Tensor signs(int64_t rows, int64_t cols, const at::TensorOptions& options) {
  auto result = at::empty({rows, cols}, at::kFloat);
  auto* const data = result.data_ptr<float>();
  uint64_t state = 0x9e3779b97f4a7c15;  // xorshift64 (Marsaglia 2003)
  for (int64_t i = 0; i < rows * cols; ++i) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    data[i] = state >> 63 ? 1.0F : -1.0F;
  }
  return result.to(options.dtype());
}

// Returns a matrix with orthonormal columns that span those of y, or nullopt if these are nearly dependent.
std::optional<at::Tensor> orthonormal(const at::Tensor& y) {
  const auto columns = y.to(at::kDouble);
  const auto [lower, info] = at::linalg_cholesky_ex(at::mm(columns.t(), columns));
  if (info.item<int>() != 0) return std::nullopt;
  const auto result = at::linalg_solve_triangular(lower.t(), columns, /*upper=*/true, /*left=*/false);
  return result.to(y.scalar_type()).contiguous();
}

// Returns the sum of x over all columns, weighted by the reductions.
double weighted_sum(const at::Tensor& x, const at::Tensor& reductions) {
  return (x * reductions).sum().item<double>();
}

}  // namespace

std::optional<Deflation> Deflation::apply(GramMatrix& gram) {
  const auto& s = gram.matrix;
  const int64_t m = s.size(0);
  if (!s.is_cpu() || m < kMinSide || gram.lambda * static_cast<double>(m) < kMinRatio * gram.trace) {
    return std::nullopt;
  }
  const MklSingleThreadGuard single_thread;
  mirror_lower_(gram.matrix);
  at::Tensor basis, image = gemm(s, signs(m, m / kRowsPerColumn, s.options()));
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    const auto next = orthonormal(image);
    if (!next) return std::nullopt;
    basis = *next;
    image = gemm(s, basis);
  }
  basis = basis.to(at::kDouble);
  image = image.to(at::kDouble);
  const auto [values, vectors] = at::linalg_eigh(at::mm(basis.t(), image), "L");  // in ascending order
  const double smallest = values[0].item<double>();
  if (!(smallest > gram.rounding)) return std::nullopt;
  basis = at::mm(basis, vectors);
  image = at::mm(image, vectors);

  Deflation result;
  const auto g = 1 - (smallest / values).sqrt();
  const auto norms = values.sqrt();
  const double slack = std::sqrt(static_cast<double>(m)) * machine_epsilon(s.scalar_type());
  result.spectral_rounding_ = gram.spectral_rounding;
  result.reductions_ = g;
  result.basis_ = basis.to(s.scalar_type());
  result.image_ = image - basis * (g * values);
  result.removed_norm_ = (1 + slack) * weighted_sum(norms + gram.spectral_rounding / (2 * norms), g);
  // D S D = S - V Z^T - Z V^T with Z = S V G - V G T G / 2, where T = V^T S V is diagonal.
  gram.subtract(result.basis_, (image * g - basis * (g * g * values / 2)).to(s.scalar_type()));
  return result;
}

double Deflation::undo(at::Tensor& q) const {
  const auto products = gemm(q, basis_);  // Q V
  const auto products64 = products.to(at::kDouble);
  gemm_out(q, products * reductions_.to(products.scalar_type()), basis_.t(), -1, 1);
  // <A - D A, X> is the trace of G (Q V)^T D A A^T V.
  const double slack = std::sqrt(static_cast<double>(q.size(0))) * machine_epsilon(q.scalar_type());
  return weighted_sum(products64 * image_, reductions_) - slack * removed_norm_ -
         spectral_rounding_ * weighted_sum(at::linalg_vector_norm(products64, 2, 0), reductions_);
}

}  // namespace tensorion
