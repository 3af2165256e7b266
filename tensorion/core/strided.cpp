#include "tensorion/core/strided.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <numeric>
#include <vector>

namespace tensorion {
namespace {

// A shape with the strides of two tensors of that shape.
struct Loops {
  struct Dimension {
    int64_t size;
    std::array<int64_t, 2> strides;
  };
  std::vector<Dimension> outer;
  Dimension inner{1, {1, 1}};
  int64_t runs = 1;
};

// Inner length above which the stride no longer matters.
constexpr int64_t kLong = 32;

// ATen loops innermost over the fastest dimension of the result, which in a kernel has three entries. Here
// the one with the smallest steps of those that are long is innermost.
Loops loops_over(const at::Tensor& a, const at::Tensor& b) {
  Loops loops;
  std::vector<Loops::Dimension> dimensions;
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) != 1) dimensions.push_back({a.size(d), {a.stride(d), b.stride(d)}});
  }
  std::stable_sort(dimensions.begin(), dimensions.end(),
                   [](const auto& x, const auto& y) { return x.strides[0] > y.strides[0]; });
  // Neighbours that continue each other in both tensors are one.
  for (const auto& d : dimensions) {
    if (!loops.outer.empty()) {
      auto& last = loops.outer.back();
      if (last.strides[0] == d.strides[0] * d.size && last.strides[1] == d.strides[1] * d.size) {
        last = {last.size * d.size, d.strides};
        continue;
      }
    }
    loops.outer.push_back(d);
  }
  if (loops.outer.empty()) return loops;
  const auto inner =
      std::min_element(loops.outer.begin(), loops.outer.end(), [](const auto& x, const auto& y) {
        const auto length = [](const auto& d) { return std::min(d.size, kLong); };
        const auto step = [](const auto& d) { return d.strides[0] + d.strides[1]; };
        return length(x) != length(y) ? length(x) > length(y) : step(x) < step(y);
      });
  loops.inner = *inner;
  loops.outer.erase(inner);
  for (const auto& d : loops.outer) loops.runs *= d.size;
  return loops;
}

// Calls run(size, a, stride of a, b, stride of b) until all entries have been seen, on all threads.
template <typename Run>
void for_each_run(const at::Tensor& a, const at::Tensor& b, Run run) {
  const auto loops = loops_over(a, b);
  auto* const a_data = a.data_ptr<float>();
  auto* const b_data = b.data_ptr<float>();
  const auto& inner = loops.inner;
  // Long runs are cut so that there are enough for the threads.
  constexpr int64_t kPiece = 1 << 14;
  const int64_t pieces = (inner.size + kPiece - 1) / kPiece;
  const int64_t grain = std::max<int64_t>(1, 2 * kPiece / std::min(inner.size, kPiece));
  at::parallel_for(0, loops.runs * pieces, grain, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const int64_t first = index % pieces * kPiece;
      int64_t rest = index / pieces;
      int64_t a_offset = first * inner.strides[0], b_offset = first * inner.strides[1];
      for (auto d = loops.outer.rbegin(); d != loops.outer.rend(); ++d) {
        a_offset += rest % d->size * d->strides[0];
        b_offset += rest % d->size * d->strides[1];
        rest /= d->size;
      }
      run(std::min(kPiece, inner.size - first), a_data + a_offset, inner.strides[0], b_data + b_offset,
          inner.strides[1]);
    }
  });
}

// Autograd must see that memory which it may have saved has changed.
void bump_version(const at::Tensor& x) {
  if (!x.is_inference()) x.unsafeGetTensorImpl()->bump_version();
}

bool is_fast(const at::Tensor& a, const at::Tensor& b) {
  const auto plain = [](const at::Tensor& x) {
    return x.is_cpu() && x.scalar_type() == at::kFloat && x.layout() == at::kStrided && !x.is_neg();
  };
  return plain(a) && plain(b) && a.numel() > 0;
}

}  // namespace

void copy_strided(const at::Tensor& x, const at::Tensor& out) {
  if (!is_fast(x, out)) {
    out.copy_(x);
    return;
  }
  bump_version(out);
  for_each_run(x, out, [](int64_t n, const float* from, int64_t step, float* to, int64_t to_step) {
    for (int64_t i = 0; i < n; ++i) to[i * to_step] = from[i * step];
  });
}

bool axpby_(double decay, const at::Tensor& y, double alpha, const at::Tensor& x) {
  if (!is_fast(y, x)) {
    if (decay != 1) y.mul_(decay);
    y.add_(x, alpha);
    return false;
  }
  bump_version(y);
  const auto keep = static_cast<float>(decay);
  const auto scale = static_cast<float>(alpha);
  std::atomic<bool> finite = true;
  for_each_run(y, x, [&](int64_t n, float* to, int64_t to_step, const float* from, int64_t step) {
    float zero = 0;  // the sum of v - v, which is NaN where v is not finite
    if (to_step == 1 && step == 1) {
#pragma omp simd reduction(+ : zero)
      for (int64_t i = 0; i < n; ++i) {
        const float v = keep * to[i] + scale * from[i];
        to[i] = v;
        zero += v - v;
      }
    } else {
      for (int64_t i = 0; i < n; ++i) {
        const float v = keep * to[i * to_step] + scale * from[i * step];
        to[i * to_step] = v;
        zero += v - v;
      }
    }
    if (std::isnan(zero)) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

double inner_product(const at::Tensor& a, const at::Tensor& b) {
  if (!is_fast(a, b) || !a.is_non_overlapping_and_dense() || a.strides() != b.strides()) {
    return at::dot(a.to(at::kDouble).reshape(-1), b.to(at::kDouble).reshape(-1)).item<double>();
  }
  const auto* const left = a.const_data_ptr<float>();
  const auto* const right = b.const_data_ptr<float>();
  // Summed in order: the result does not depend on the threads.
  constexpr int64_t kPiece = 1 << 14;
  const int64_t size = a.numel(), pieces = (size + kPiece - 1) / kPiece;
  std::vector<double> partial(pieces);
  at::parallel_for(0, pieces, 2, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      double sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = piece * kPiece; i < std::min(size, (piece + 1) * kPiece); ++i)
        sum += static_cast<double>(left[i]) * right[i];
      partial[piece] = sum;
    }
  });
  return std::accumulate(partial.begin(), partial.end(), 0.0);
}

}  // namespace tensorion
