#include "tensorion/polar/cholesky.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tensorion/core/gemm.h"
#include "tensorion/core/mkl_single_thread_guard.h"
#include "tensorion/core/scratch_arena.h"

// The LAPACK and BLAS functions that libtorch is linked with. The pointers are null if the symbols are not
// visible. ATen's Cholesky functions call the same routines, but copy and transpose the matrix, which doubles
// the cost. They are used on other devices, and if the symbols are missing.
extern "C" {
void spotrf_(const char*, const int*, float*, const int*, int*) __attribute__((weak));
void dpotrf_(const char*, const int*, double*, const int*, int*) __attribute__((weak));
void spotri_(const char*, const int*, float*, const int*, int*) __attribute__((weak));
void dpotri_(const char*, const int*, double*, const int*, int*) __attribute__((weak));
void strsm_(const char*, const char*, const char*, const char*, const int*, const int*, const float*,
            const float*, const int*, float*, const int*) __attribute__((weak));
}

namespace tensorion {
namespace {

// Calls potrf or potri, which have the same arguments. Returns true if the call succeeds.
template <typename T>
bool call_lapack(void (*lapack)(const char*, const int*, T*, const int*, int*), const at::Tensor& w) {
  const MklSingleThreadGuard single_thread;
  const int m = static_cast<int>(w.size(0)), row_stride = static_cast<int>(w.stride(0));
  int info = 0;
  lapack("U", &m, w.data_ptr<T>(), &row_stride, &info);  // column-major upper is row-major lower
  return info == 0;
}

// Returns the sum over the diagonal.
template <typename T>
double sum_of_logarithms(const at::Tensor& w) {
  const T* const data = w.const_data_ptr<T>();
  const int64_t step = w.stride(0) + w.stride(1);
  double sum = 0;
  for (int64_t i = 0; i < w.size(0); ++i) sum += std::log(static_cast<double>(data[i * step]));
  return sum;
}

// The blocked functions below spend most of their time in gemm_out. On an AMD EPYC they take 0.6 of LAPACK's
// time for 1536 x 1536 if products use oneDNN. With MKL's products they take 0.93 on one thread, and 0.73 on
// two, because MKL's potri does not use the second one. Smaller matrices gain less.
constexpr int64_t kMinBlockedSize = 512;

bool use_blocks(const at::Tensor& w) {
  return w.is_cpu() && w.scalar_type() == at::kFloat && w.size(0) >= kMinBlockedSize && w.is_contiguous() &&
         spotrf_ && strsm_;
}

// The best of 64, 96, 128, 192 and 256 on that CPU: the faster the products, the larger the block.
int64_t block_size(const at::Tensor& w) { return uses_onednn(w) ? 192 : 96; }

at::Tensor block(const at::Tensor& w, int64_t row, int64_t last_row, int64_t col, int64_t last_col) {
  return w.narrow(0, row, last_row - row).narrow(1, col, last_col - col);
}

// A matrix at the beginning of a buffer.
at::Tensor matrix_in(const at::Tensor& buffer, int64_t rows, int64_t cols) {
  return buffer.narrow(0, 0, rows * cols).view({rows, cols});
}

// Returns the inverse of a lower triangular block in `buffer`. Its upper triangle is zero.
at::Tensor invert_triangle(const at::Tensor& lower, const at::Tensor& buffer) {
  const int size = static_cast<int>(lower.size(0)), row_stride = static_cast<int>(lower.stride(0));
  auto inverse = matrix_in(buffer, size, size);
  inverse.zero_().fill_diagonal_(1);
  const float one = 1;
  // Solves X L^T = I in column-major order, that is L X = I in row-major order.
  strsm_("R", "U", "N", "N", &size, &size, &one, lower.const_data_ptr<float>(), &row_stride,
         inverse.data_ptr<float>(), &size);
  return inverse;
}

// Replaces the lower triangle of w by its Cholesky factor. Returns false if w is not positive definite.
bool blocked_cholesky_(const at::Tensor& w) {
  const int64_t m = w.size(0), size = block_size(w);
  const auto triangle = scratch({size * size}, w.options()), buffer = scratch({m * size}, w.options());
  for (int64_t first = 0; first < m; first += size) {
    const int64_t last = std::min(m, first + size);
    if (first > 0) {
      gemm_out(block(w, first, m, first, last), block(w, first, m, 0, first),
               block(w, first, last, 0, first).t(), -1, 1);
    }
    const auto diagonal = block(w, first, last, first, last);
    if (!call_lapack(spotrf_, diagonal)) return false;
    if (last == m) break;
    const auto below = block(w, last, m, first, last);
    const auto panel = matrix_in(buffer, m - last, last - first);
    gemm_out(panel, below, invert_triangle(diagonal, triangle).t());
    below.copy_(panel);
  }
  return true;
}

// Replaces a Cholesky factor L by K = L^-1. The part of w above the blocks of the diagonal is not changed.
void invert_blocked_triangle_(const at::Tensor& w) {
  const int64_t m = w.size(0), size = block_size(w);
  const auto triangle = scratch({size * size}, w.options());
  const auto sums = scratch({m * size}, w.options()), products = scratch({m * size}, w.options());
  for (int64_t first = 0; first < m; first += size) {
    const int64_t last = std::min(m, first + size);
    const auto diagonal = block(w, first, last, first, last);
    const auto inverse = invert_triangle(diagonal, triangle);
    if (first > 0) {
      const auto sum = matrix_in(sums, last - first, first),
                 product = matrix_in(products, last - first, first);
      for (int64_t col = 0; col < first; col += size) {
        gemm_out(sum.narrow(1, col, size), block(w, first, last, col, first),
                 block(w, col, first, col, col + size));
      }
      gemm_out(product, inverse, sum, -1);
      block(w, first, last, 0, first).copy_(product);
    }
    diagonal.copy_(inverse);
  }
}

// Replaces K by the lower triangle of K^T K. A row of blocks of the result depends only on this row of K and
// on those below it, so it can overwrite the row of K.
void multiply_by_transpose_(const at::Tensor& w) {
  const int64_t m = w.size(0), size = block_size(w);
  const auto transposes = scratch({m * size}, w.options()), results = scratch({m * size}, w.options());
  for (int64_t first = 0; first < m; first += size) {
    const int64_t last = std::min(m, first + size);
    const auto transpose = matrix_in(transposes, last - first, m - first);
    transpose.copy_(block(w, first, m, first, last).t());
    const auto result = matrix_in(results, last - first, last);
    gemm_out(result, transpose, block(w, first, m, 0, last));
    block(w, first, last, 0, last).copy_(result);
  }
}

}  // namespace

std::optional<double> cholesky_(at::Tensor& w) {
  const bool raw = w.is_cpu() && w.is_contiguous();
  if (use_blocks(w)) {
    if (!blocked_cholesky_(w)) return std::nullopt;
  } else if (raw && w.scalar_type() == at::kFloat && spotrf_) {
    if (!call_lapack(spotrf_, w)) return std::nullopt;
  } else if (raw && w.scalar_type() == at::kDouble && dpotrf_) {
    if (!call_lapack(dpotrf_, w)) return std::nullopt;
  } else {
    const auto [lower, info] = at::linalg_cholesky_ex(w);
    if (info.item<int>() != 0) return std::nullopt;
    w.copy_(lower);
  }
  const double log_det =
      2 * (w.scalar_type() == at::kFloat ? sum_of_logarithms<float>(w) : sum_of_logarithms<double>(w));
  return std::isfinite(log_det) ? std::optional(log_det) : std::nullopt;
}

void cholesky_inverse_(at::Tensor& w) {
  const bool raw = w.is_cpu() && w.is_contiguous();
  bool inverted = true;
  if (use_blocks(w)) {
    invert_blocked_triangle_(w);
    multiply_by_transpose_(w);
  } else if (raw && w.scalar_type() == at::kFloat && spotri_) {
    inverted = call_lapack(spotri_, w);
  } else if (raw && w.scalar_type() == at::kDouble && dpotri_) {
    inverted = call_lapack(dpotri_, w);
  } else {
    w.copy_(at::cholesky_inverse(w));
  }
  TORCH_INTERNAL_ASSERT(inverted, "the factor has a zero on its diagonal");
}

}  // namespace tensorion
