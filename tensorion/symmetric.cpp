#include "tensorion/symmetric.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

// The LAPACK that libtorch itself was linked with, where it is visible. ATen's own Cholesky functions copy
// and transpose around the same routines, which doubles their cost; they remain the way on other devices.
extern "C" {
void spotrf_(const char*, const int*, float*, const int*, int*) __attribute__((weak));
void dpotrf_(const char*, const int*, double*, const int*, int*) __attribute__((weak));
void spotri_(const char*, const int*, float*, const int*, int*) __attribute__((weak));
void dpotri_(const char*, const int*, double*, const int*, int*) __attribute__((weak));
}

namespace tensorion {
namespace {

// Blocks of at least 192 rows keep the products at the speed of a large GEMM; more than eight save nothing.
int64_t block_rows(int64_t m) { return std::max<int64_t>(192, (m + 7) / 8); }

// The lower blocks of left * right, mirrored; the product must be symmetric.
at::Tensor symmetric_product(const at::Tensor& left, const at::Tensor& right) {
  const int64_t m = left.size(-2);
  const int64_t block = left.is_cpu() ? block_rows(m) : std::max<int64_t>(512, (m + 1) / 2);
  if (left.dim() != 2 || m <= block) return at::matmul(left, right);
  auto out = at::empty({m, m}, left.options());
  for (int64_t begin = 0; begin < m; begin += block) {
    const int64_t rows = std::min(block, m - begin);
    auto lower = out.narrow(0, begin, rows).narrow(1, 0, begin + rows);
    at::mm_out(lower, left.narrow(0, begin, rows), right.narrow(1, 0, begin + rows));
    if (begin > 0) out.narrow(0, 0, begin).narrow(1, begin, rows).copy_(lower.narrow(1, 0, begin).t());
  }
  return out;
}

template <typename T>
void mirror_lower(T* w, int64_t m) {
  constexpr int64_t kTile = 32;
  const int64_t tiles = (m + kTile - 1) / kTile;
  at::parallel_for(0, tiles, 8, [&](int64_t first, int64_t last) {
    for (int64_t tile = first; tile < last; ++tile) {
      const int64_t end = std::min(m, (tile + 1) * kTile);
      for (int64_t start = 0; start < end; start += kTile) {
        for (int64_t i = tile * kTile; i < end; ++i) {
          for (int64_t j = start; j < std::min(i, start + kTile); ++j) w[j * m + i] = w[i * m + j];
        }
      }
    }
  });
}

template <typename T>
std::optional<double> invert_positive(T* w, int64_t size,
                                      void (*factor)(const char*, const int*, T*, const int*, int*),
                                      void (*invert)(const char*, const int*, T*, const int*, int*)) {
  const int m = static_cast<int>(size);
  int info = 0;
  factor("U", &m, w, &m, &info);  // column-major upper is row-major lower
  if (info != 0) return std::nullopt;
  double log_det = 0;
  for (int64_t i = 0; i < size; ++i) log_det += 2 * std::log(static_cast<double>(w[i * size + i]));
  invert("U", &m, w, &m, &info);
  if (info != 0 || !std::isfinite(log_det)) return std::nullopt;
  return log_det;
}

}  // namespace

at::Tensor gram(const at::Tensor& a) { return symmetric_product(a, a.mT()); }

at::Tensor commuting_product(const at::Tensor& a, const at::Tensor& b) { return symmetric_product(a, b); }

void mirror_lower_(at::Tensor& w) {
  if (w.is_cpu() && w.is_contiguous() && w.scalar_type() == at::kFloat) {
    mirror_lower(w.data_ptr<float>(), w.size(0));
  } else if (w.is_cpu() && w.is_contiguous() && w.scalar_type() == at::kDouble) {
    mirror_lower(w.data_ptr<double>(), w.size(0));
  } else {
    const auto lower = w.tril();
    w.copy_(lower + lower.tril(-1).mT());
  }
}

std::optional<double> invert_positive_(at::Tensor& w) {
  if (w.is_cpu() && w.is_contiguous()) {
    if (w.scalar_type() == at::kFloat && spotrf_ && spotri_) {
      return invert_positive(w.data_ptr<float>(), w.size(0), spotrf_, spotri_);
    }
    if (w.scalar_type() == at::kDouble && dpotrf_ && dpotri_) {
      return invert_positive(w.data_ptr<double>(), w.size(0), dpotrf_, dpotri_);
    }
  }
  const auto [lower, info] = at::linalg_cholesky_ex(w);
  if (info.item<int>() != 0) return std::nullopt;
  const double log_det = 2 * lower.diagonal().to(at::kDouble).log().sum().item<double>();
  if (!std::isfinite(log_det)) return std::nullopt;
  w.copy_(at::cholesky_inverse(lower));
  return log_det;
}

}  // namespace tensorion
