#include "tensorion/polar/positive_definite.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tensorion/core/gemm.h"
#include "tensorion/core/mkl_single_thread_guard.h"
#include "tensorion/core/parallel.h"
#include "tensorion/core/scratch_arena.h"
#include "tensorion/polar/symmetric.h"

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

enum class Result { kLogDet, kInverse };

// Calls potrf or potri, which have the same arguments. Returns true if the call succeeds.
template <typename T>
bool call_lapack(void (*lapack)(const char*, const int*, T*, const int*, int*), const at::Tensor& w) {
  const MklSingleThreadGuard single_thread;
  const int m = static_cast<int>(w.size(0)), row_stride = static_cast<int>(w.stride(0));
  int info = 0;
  lapack("U", &m, w.data_ptr<T>(), &row_stride, &info);  // column-major upper is row-major lower
  return info == 0;
}

// Returns the logarithm of the determinant of a matrix from its Cholesky factor.
template <typename T>
double log_det_of_factor(const at::Tensor& lower) {
  const T* const data = lower.const_data_ptr<T>();
  const int64_t step = lower.stride(0) + lower.stride(1);
  double sum = 0;
  for (int64_t i = 0; i < lower.size(0); ++i) sum += std::log(static_cast<double>(data[i * step]));
  return 2 * sum;
}

template <typename T>
std::optional<double> by_lapack(const at::Tensor& w, Result result,
                                void (*potrf)(const char*, const int*, T*, const int*, int*),
                                void (*potri)(const char*, const int*, T*, const int*, int*)) {
  if (!call_lapack(potrf, w)) return std::nullopt;
  const double log_det = log_det_of_factor<T>(w);
  if (result == Result::kInverse && !call_lapack(potri, w)) return std::nullopt;
  return log_det;
}

std::optional<double> by_aten(at::Tensor& w, Result result) {
  const auto [lower, info] = at::linalg_cholesky_ex(w);
  if (info.item<int>() != 0) return std::nullopt;
  const double log_det = 2 * lower.diagonal().to(at::kDouble).log().sum().item<double>();
  if (result == Result::kInverse) w.copy_(at::cholesky_inverse(lower));
  return log_det;
}

at::Tensor block(const at::Tensor& w, int64_t row, int64_t last_row, int64_t col, int64_t last_col) {
  return w.narrow(0, row, last_row - row).narrow(1, col, last_col - col);
}

// A matrix at the beginning of a buffer. oneDNN copies matrices that are not contiguous.
at::Tensor matrix_in(const at::Tensor& buffer, int64_t rows, int64_t cols) {
  return buffer.narrow(0, 0, rows * cols).view({rows, cols});
}

// Computes out <- scale x^T. It is faster than ATen for a block of a larger matrix.
void copy_transposed(const at::Tensor& x, const at::Tensor& out, float scale) {
  constexpr int64_t kTile = 16;
  const int64_t rows = x.size(0), cols = x.size(1), stride = x.stride(0), out_stride = out.stride(0);
  const float* const from = x.const_data_ptr<float>();
  float* const to = out.data_ptr<float>();
  for (int64_t left = 0; left < cols; left += kTile) {
    for (int64_t top = 0; top < rows; top += kTile) {
      for (int64_t j = left; j < std::min(cols, left + kTile); ++j) {
        for (int64_t i = top; i < std::min(rows, top + kTile); ++i)
          to[j * out_stride + i] = scale * from[i * stride + j];
      }
    }
  }
}

// The sizes of blocks that are eliminated at once, and of the panels of columns that are updated at once. The
// best of 48, 64, 96, 128 and 192 for 1536 x 1536: the faster the products, the larger the block.
struct BlockSizes {
  int64_t block;
  int64_t panel;
};

BlockSizes block_sizes(const at::Tensor& w) {
  return uses_onednn(w) ? BlockSizes{96, 192} : BlockSizes{64, 96};
}

// Gauss-Jordan elimination in blocks, with Cholesky factors of the blocks on the diagonal.
//
// After the elimination of the first f rows and columns of W = [A B^T; B C], the lower triangle holds A^-1,
// B A^-1 and the Schur complement C - B A^-1 B^T. The next block D = L L^T of the diagonal of the Schur
// complement is eliminated as follows. Let P be the rows of B A^-1 of this block, transposed, above the
// columns of the Schur complement of this block, and U = P L^-T. Then A^-1 grows by U U^T, the other two
// parts decrease by U U^T, and R = U L^-1 replaces the rows (as -R^T) and columns of the block. This performs
// the same operations as a Cholesky factorization, the inversion of the factor L and the product L^-T L^-1,
// so the rounding errors are similar. (With P D^-1 P^T instead of U U^T they would grow with the condition
// number of D.) But all products are large and independent, and the matrix is updated in place.
//
// For a determinant, the Schur complements suffice.
class Elimination {
 public:
  Elimination(at::Tensor w, Result result)
      : w_(std::move(w)),
        result_(result),
        m_(w_.size(0)),
        sizes_(block_sizes(w_)),
        panel_buffer_(scratch({m_ * sizes_.block}, w_.options())),
        product_buffer_(scratch({m_ * sizes_.block}, w_.options())),
        factor_buffer_(scratch({sizes_.block * sizes_.block}, w_.options())),
        inverse_buffer_(scratch({sizes_.block * sizes_.block}, w_.options())) {}

  std::optional<double> run() {
    double log_det = 0;
    for (int64_t first = 0; first < m_; first += sizes_.block) {
      const auto part = eliminate(first, std::min(m_, first + sizes_.block));
      if (!part) return std::nullopt;
      log_det += *part;
    }
    return log_det;
  }

 private:
  // Eliminates the rows and columns [first, last). Returns the logarithm of the determinant of the block.
  std::optional<double> eliminate(int64_t first, int64_t last) {
    const int64_t size = last - first, top = result_ == Result::kInverse ? first : 0, rows = top + m_ - last;
    const auto diagonal = block(w_, first, last, first, last);
    const auto factor = matrix_in(factor_buffer_, size, size).copy_(diagonal);
    if (!call_lapack(spotrf_, factor)) return std::nullopt;
    const double log_det = log_det_of_factor<float>(factor);
    const auto inverse_factor = invert_factor(factor);
    const auto panel = matrix_in(panel_buffer_, rows, size), product = matrix_in(product_buffer_, rows, size);
    const auto left = block(w_, first, last, 0, top), below = block(w_, last, m_, first, last);
    if (top > 0) copy_transposed(left, panel.narrow(0, 0, top), 1);
    if (last < m_) panel.narrow(0, top, m_ - last).copy_(below);
    if (rows > 0) gemm_out(product, panel, inverse_factor.t());
    update(product, top, last);
    if (result_ == Result::kInverse) {
      if (rows > 0) gemm_out(panel, product, inverse_factor);
      if (top > 0) copy_transposed(panel.narrow(0, 0, top), left, -1);
      if (last < m_) below.copy_(panel.narrow(0, top, m_ - last));
      gemm_out(factor, inverse_factor.t(), inverse_factor);
      diagonal.copy_(factor);
    }
    return log_det;
  }

  // Returns L^-1. Its upper triangle is zero.
  at::Tensor invert_factor(const at::Tensor& factor) const {
    const int size = static_cast<int>(factor.size(0));
    auto inverse = matrix_in(inverse_buffer_, size, size);
    inverse.zero_().fill_diagonal_(1);
    const float one = 1;
    // Solves X L^T = I in column-major order, that is L X = I in row-major order.
    strsm_("R", "U", "N", "N", &size, &size, &one, factor.const_data_ptr<float>(), &size,
           inverse.data_ptr<float>(), &size);
    return inverse;
  }

  // Adds U U^T to the first `top` rows and columns, and subtracts it from the rows after `last`, in the lower
  // triangle. U has `top` rows for the former, followed by those for the latter.
  void update(const at::Tensor& u, int64_t top, int64_t last) {
    const int64_t upper_panels = (top + sizes_.panel - 1) / sizes_.panel;
    const int64_t panels = upper_panels + (m_ - last + sizes_.panel - 1) / sizes_.panel;
    const auto add = [&](int64_t row, int64_t last_row, int64_t col, int64_t last_col, double sign) {
      if (row == last_row) return;
      // The rows of U do not include those of the eliminated block.
      const auto place = [&](int64_t i) { return i < top ? i : i - last + top; };
      gemm_out(block(w_, row, last_row, col, last_col), u.narrow(0, place(row), last_row - row),
               u.narrow(0, place(col), last_col - col).t(), sign, 1);
    };
    for_each_dynamically(panels, panel_threads(w_), [&](int64_t i) {
      if (i < upper_panels) {
        const int64_t col = i * sizes_.panel, last_col = std::min(top, col + sizes_.panel);
        add(col, top, col, last_col, 1);
        add(last, m_, col, last_col, -1);
      } else {
        const int64_t col = last + (i - upper_panels) * sizes_.panel;
        add(col, m_, col, std::min(m_, col + sizes_.panel), -1);
      }
    });
  }

  at::Tensor w_;
  Result result_;
  int64_t m_;
  BlockSizes sizes_;
  at::Tensor panel_buffer_, product_buffer_, factor_buffer_, inverse_buffer_;
};

// Smaller matrices are not slower with LAPACK. For 1536 x 1536, the elimination takes 0.52 of LAPACK's time
// with oneDNN, and 0.88 (one thread) or 0.82 (two threads) with MKL.
constexpr int64_t kMinBlockedSize = 320;

std::optional<double> compute(at::Tensor& w, Result result) {
  std::optional<double> log_det;
  const bool raw = w.is_cpu() && w.is_contiguous();
  if (raw && w.scalar_type() == at::kFloat && w.size(0) >= kMinBlockedSize && spotrf_ && strsm_) {
    log_det = Elimination(w, result).run();
  } else if (raw && w.scalar_type() == at::kFloat && spotrf_ && spotri_) {
    log_det = by_lapack<float>(w, result, spotrf_, spotri_);
  } else if (raw && w.scalar_type() == at::kDouble && dpotrf_ && dpotri_) {
    log_det = by_lapack<double>(w, result, dpotrf_, dpotri_);
  } else {
    log_det = by_aten(w, result);
  }
  return log_det && std::isfinite(*log_det) ? log_det : std::nullopt;
}

}  // namespace

std::optional<double> invert_(at::Tensor& w) { return compute(w, Result::kInverse); }

std::optional<double> log_det_(at::Tensor& w) { return compute(w, Result::kLogDet); }

}  // namespace tensorion
