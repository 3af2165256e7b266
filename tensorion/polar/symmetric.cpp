#include "tensorion/polar/symmetric.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tensorion/core/gemm.h"
#include "tensorion/core/parallel.h"
#include "tensorion/core/scratch_arena.h"

namespace tensorion {
namespace {

// Returns true if the loops of this file can access the memory of w directly.
bool is_raw(const at::Tensor& w) {
  return w.is_cpu() && w.is_contiguous() && (w.scalar_type() == at::kFloat || w.scalar_type() == at::kDouble);
}

// Copies the columns [first, last) of the lower triangle of the m x m matrix w to its upper one.
template <typename T>
void mirror_columns(T* w, int64_t m, int64_t first, int64_t last) {
  // Tiles are transposed in a buffer. If m is a power of two, the rows of a tile compete for few cache sets.
  constexpr int64_t kTile = 32;
  T buffer[kTile][kTile];
  for (int64_t left = first; left < last; left += kTile) {
    const int64_t cols = std::min(last - left, kTile);
    for (int64_t top = left; top < m; top += kTile) {
      const int64_t rows = std::min(m - top, kTile);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < cols; ++j) buffer[j][i] = w[(top + i) * m + left + j];
      }
      for (int64_t j = 0; j < cols; ++j) {
        // In a tile on the diagonal, write only above the diagonal.
        const int64_t from = left == top ? j + 1 : 0;
        for (int64_t i = from; i < rows; ++i) w[(left + j) * m + top + i] = buffer[j][i];
      }
    }
  }
}

// The largest number of terms that is summed in single precision. Longer sums are split.
constexpr int64_t kLongestSum = 1 << 14;

// Requires is_raw(w).
void mirror_columns(const at::Tensor& w, int64_t first, int64_t last) {
  if (w.scalar_type() == at::kFloat) {
    mirror_columns(w.data_ptr<float>(), w.size(0), first, last);
  } else {
    mirror_columns(w.data_ptr<double>(), w.size(0), first, last);
  }
}

// Calls work(first, last) for panels of columns [first, last), on this number of threads, starting with the
// first panel, which is the tallest below the diagonal.
template <typename Work>
void for_each_panel(int64_t m, int64_t width, int64_t threads, const Work& work) {
  for_each_dynamically((m + width - 1) / width, threads,
                       [&](int64_t i) { work(i * width, std::min(m, (i + 1) * width)); });
}

// Returns the width of the panels of a product. Narrow panels compute fewer elements above the diagonal, and
// products of wide panels run faster. With MKL, panels of 48 columns take 0.88 (128 x 1152), 0.92 (256 x
// 2304), 0.97 (512 x 4608), 1.01 (768 x 1536) and 1.10 (1536 x 1536) times as long as panels of 96 columns.
int64_t panel_width(const at::Tensor& left) {
  const int64_t m = left.size(0);
  if (!left.is_cpu()) return 1024;
  if (uses_onednn(left)) return m > 128 && m < 1024 ? 96 : 128;
  return m > 96 && m < 768 ? 48 : 96;
}

// Computes the lower triangle of out <- alpha left right + beta c, by panels of columns that start at the
// diagonal. If `mirrored` is true, copies the result to the upper triangle.
void lower_product(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, double alpha,
                   double beta, const at::Tensor& c, bool mirrored) {
  const int64_t m = left.size(0);
  for_each_panel(m, panel_width(left), panel_threads(left), [&](int64_t first, int64_t last) {
    const auto part = [&](const at::Tensor& x) {
      return x.narrow(0, first, m - first).narrow(1, first, last - first);
    };
    const auto target = part(out);
    if (beta != 0 && !c.is_same(out)) target.copy_(part(c));
    gemm_out(target, left.narrow(0, first, m - first), right.narrow(1, first, last - first), alpha, beta);
    if (mirrored) mirror_columns(out, first, last);  // The panel is still in the cache.
  });
}

at::Tensor lower_product(const at::Tensor& left, const at::Tensor& right, double alpha, double beta,
                         const at::Tensor& c, bool mirrored) {
  auto out = scratch({left.size(0), left.size(0)}, left.options());
  const bool mirror_panels = mirrored && is_raw(out);
  lower_product(out, left, right, alpha, beta, c, mirror_panels);
  if (mirrored && !mirror_panels) mirror_lower_(out);
  return out;
}

at::Tensor symmetric_product(const at::Tensor& left, const at::Tensor& right, double alpha, double beta,
                             const at::Tensor& c) {
  if (left.dim() == 2) return lower_product(left, right, alpha, beta, c, /*mirrored=*/true);
  auto out = at::matmul(left, right);
  if (alpha != 1) out.mul_(alpha);
  if (beta != 0) out.add_(c, beta);
  return out;
}

// Returns x, or a copy whose rows are contiguous if oneDNN would otherwise copy every panel of x.
at::Tensor with_contiguous_rows(const at::Tensor& x) {
  if (x.dim() != 2 || x.is_contiguous() || !uses_onednn(x)) return x;
  return scratch(x.sizes(), x.options()).copy_(x);
}

// Returns the sum of product(piece) over pieces of the columns of a (..., m, n). The pieces are added in
// double precision, because a sum of ten million squares in single precision has an error of one percent.
template <typename Product>
at::Tensor sum_over_columns(const at::Tensor& a, const Product& product) {
  const int64_t n = a.size(-1);
  if (n <= kLongestSum || !a.is_cpu() || a.scalar_type() == at::kDouble)
    return product(with_contiguous_rows(a));
  at::Tensor total;
  for (int64_t first = 0; first < n; first += kLongestSum) {
    const auto piece = a.narrow(-1, first, std::min(kLongestSum, n - first));
    const auto part = product(with_contiguous_rows(piece));
    if (!total.defined()) total = scratch(part.sizes(), part.options().dtype(at::kDouble)).zero_();
    total.add_(part);
  }
  return scratch(total.sizes(), a.options()).copy_(total);
}

// Calls work(chunk, first row, last row) on all threads, for ranges of rows with equal numbers of elements in
// the lower triangle.
constexpr int64_t kChunks = 16;
template <typename Work>
void for_each_chunk(int64_t m, const Work& work) {
  const auto boundary = [m](int64_t chunk) {
    return static_cast<int64_t>(std::llround(m * std::sqrt(static_cast<double>(chunk) / kChunks)));
  };
  at::parallel_for(0, kChunks, m < 256 ? kChunks : 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) work(chunk, boundary(chunk), boundary(chunk + 1));
  });
}

template <typename T>
Moments sum_moments(const T* w, int64_t m) {
  // The partial sums are added in a fixed order, so the result does not depend on the number of threads.
  std::array<Moments, kChunks> partial;
  for_each_chunk(m, [&](int64_t chunk, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const T* row = w + i * m;
      double squares = 0;
#pragma omp simd reduction(+ : squares)
      for (int64_t j = 0; j <= i; ++j) squares += static_cast<double>(row[j]) * row[j];
      const double diagonal = row[i];
      partial[chunk].trace += diagonal;
      partial[chunk].squares += 2 * squares - diagonal * diagonal;
    }
  });
  Moments moments;
  for (const auto& part : partial) {
    moments.trace += part.trace;
    moments.squares += part.squares;
  }
  return moments;
}

template <typename T>
void copy_lower(const at::Tensor& from, const at::Tensor& to) {
  const int64_t m = from.size(0);
  const T* const source = from.const_data_ptr<T>();
  T* const target = to.data_ptr<T>();
  for_each_chunk(m, [&](int64_t, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) std::copy_n(source + i * m, i + 1, target + i * m);
  });
}

template <typename T>
void add_to_diagonal_(const at::Tensor& w, double value) {
  const int64_t m = w.size(0);
  T* const data = w.data_ptr<T>();
  for (int64_t i = 0; i < m; ++i) data[i * (m + 1)] += static_cast<T>(value);
}

template <typename T>
void combine(const std::vector<at::Tensor>& matrices, const std::vector<double>& scales) {
  const int64_t m = matrices[0].size(0);
  std::vector<T*> data;
  for (const auto& matrix : matrices) data.push_back(matrix.data_ptr<T>());
  for_each_chunk(m, [&](int64_t, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      T* row = data[0] + i * m;
      for (size_t k = 0; k < data.size(); ++k) {
        const T* other = data[k] + i * m;
        const T scale = static_cast<T>(scales[k]), keep = k > 0 ? 1 : 0;
#pragma omp simd
        for (int64_t j = 0; j <= i; ++j) row[j] = keep * row[j] + scale * other[j];
      }
    }
  });
}

}  // namespace

bool use_paired_threads(const at::Tensor& w) {
  const int threads = at::get_num_threads();
  return w.is_cpu() && w.size(0) >= 128 && threads >= 2 && threads < 4 && !at::in_parallel_region();
}

int64_t panel_threads(const at::Tensor& w) { return use_paired_threads(w) ? at::get_num_threads() : 1; }

at::Tensor gram(const at::Tensor& a) {
  return sum_over_columns(a, [](const at::Tensor& x) { return symmetric_product(x, x.mT(), 1, 0, {}); });
}

at::Tensor lower_gram(const at::Tensor& a) {
  return sum_over_columns(
      a, [](const at::Tensor& x) { return lower_product(x, x.mT(), 1, 0, {}, /*mirrored=*/false); });
}

at::Tensor gram_in_double(const at::Tensor& a) {
  const auto options = a.options().dtype(at::kDouble);
  const int64_t n = a.size(1), width = std::min<int64_t>(n, 1 << 10);
  auto sum = scratch({a.size(0), a.size(0)}, options).zero_();
  const auto buffer = scratch({a.size(0), width}, options);
  for (int64_t first = 0; first < n; first += width) {
    const int64_t count = std::min(width, n - first);
    const auto piece = buffer.narrow(1, 0, count).copy_(a.narrow(1, first, count));
    sum.addmm_(piece, piece.mT());
  }
  return sum;
}

at::Tensor commuting_product(const at::Tensor& a, const at::Tensor& b, double alpha, double beta,
                             const at::Tensor& c) {
  return symmetric_product(a, b, alpha, beta, c);
}

void subtract_products_(const at::Tensor& w, const at::Tensor& a, const at::Tensor& b) {
  const auto left = at::cat({a, b}, 1), right = at::cat({b, a}, 1).t();
  lower_product(w, left, right, -1, 1, w, /*mirrored=*/false);
}

at::Tensor copy_lower(const at::Tensor& w) {
  auto copy = scratch(w.sizes(), w.options());
  if (!is_raw(w)) return copy.copy_(w);
  if (w.scalar_type() == at::kFloat) {
    copy_lower<float>(w, copy);
  } else {
    copy_lower<double>(w, copy);
  }
  return copy;
}

void add_to_diagonal_(const at::Tensor& w, double value) {
  if (!is_raw(w)) {
    w.diagonal().add_(value);
  } else if (w.scalar_type() == at::kFloat) {
    add_to_diagonal_<float>(w, value);
  } else {
    add_to_diagonal_<double>(w, value);
  }
}

void mirror_lower_(at::Tensor& w) {
  if (is_raw(w)) {
    constexpr int64_t kWidth = 64;
    const int64_t threads = w.size(0) < 256 ? 1 : at::get_num_threads();
    for_each_panel(w.size(0), kWidth, threads,
                   [&](int64_t first, int64_t last) { mirror_columns(w, first, last); });
  } else {
    const auto lower = w.tril();
    w.copy_(lower + lower.tril(-1).mT());
  }
}

Moments lower_moments(const at::Tensor& w) {
  if (w.is_cpu() && w.scalar_type() == at::kFloat) return sum_moments(w.const_data_ptr<float>(), w.size(0));
  if (w.is_cpu() && w.scalar_type() == at::kDouble) return sum_moments(w.const_data_ptr<double>(), w.size(0));
  const auto lower = w.tril();
  const auto diagonal = lower.diagonal().to(at::kDouble);
  return {diagonal.sum().item<double>(),
          2 * lower.to(at::kDouble).square().sum().item<double>() - diagonal.square().sum().item<double>()};
}

at::Tensor combine_lower(const std::vector<at::Tensor>& matrices, const std::vector<double>& scales) {
  auto sum = matrices[0];
  if (sum.is_cpu() && sum.scalar_type() == at::kFloat) {
    combine<float>(matrices, scales);
  } else if (sum.is_cpu() && sum.scalar_type() == at::kDouble) {
    combine<double>(matrices, scales);
  } else {
    sum.mul_(scales[0]);
    for (size_t k = 1; k < matrices.size(); ++k) sum.add_(matrices[k], scales[k]);
  }
  return sum;
}

}  // namespace tensorion
