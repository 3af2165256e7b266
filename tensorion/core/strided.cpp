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

// A loop nest over two tensors of equal shape, with the strides of both.
struct LoopNest {
  struct Dimension {
    int64_t size;
    std::array<int64_t, 2> strides;
  };
  std::vector<Dimension> outer;
  Dimension inner{1, {1, 1}};
  int64_t outer_iterations = 1;
};

// Inner loops of at least this length count as equally long. Among them, the smallest stride is preferred.
constexpr int64_t kLongLoop = 32;

// ATen's innermost loop runs over the fastest dimension of the result, which has only three elements for a 3
// x 3 convolution kernel. This innermost loop runs over a long dimension with small strides instead.
LoopNest loop_nest(const at::Tensor& a, const at::Tensor& b) {
  LoopNest loops;
  std::vector<LoopNest::Dimension> dimensions;
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) != 1) dimensions.push_back({a.size(d), {a.stride(d), b.stride(d)}});
  }
  std::stable_sort(dimensions.begin(), dimensions.end(),
                   [](const auto& x, const auto& y) { return x.strides[0] > y.strides[0]; });
  // Merge adjacent dimensions that are contiguous in both tensors.
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
        const auto length = [](const auto& d) { return std::min(d.size, kLongLoop); };
        const auto step = [](const auto& d) { return d.strides[0] + d.strides[1]; };
        return length(x) != length(y) ? length(x) > length(y) : step(x) < step(y);
      });
  loops.inner = *inner;
  loops.outer.erase(inner);
  for (const auto& d : loops.outer) loops.outer_iterations *= d.size;
  return loops;
}

// Calls f(size, a, stride of a, b, stride of b) for 1-dim strided chunks that cover both tensors, on all
// threads.
template <typename F>
void for_each_inner_loop(const at::Tensor& a, const at::Tensor& b, F f) {
  const auto loops = loop_nest(a, b);
  auto* const a_data = a.data_ptr<float>();
  auto* const b_data = b.data_ptr<float>();
  const auto& inner = loops.inner;
  // Split long inner loops, so that there is work for all threads.
  constexpr int64_t kChunk = 1 << 14;
  const int64_t chunks = (inner.size + kChunk - 1) / kChunk;
  const int64_t grain = std::max<int64_t>(1, 2 * kChunk / std::min(inner.size, kChunk));
  at::parallel_for(0, loops.outer_iterations * chunks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const int64_t first = index % chunks * kChunk;
      int64_t rest = index / chunks;
      int64_t a_offset = first * inner.strides[0], b_offset = first * inner.strides[1];
      for (auto d = loops.outer.rbegin(); d != loops.outer.rend(); ++d) {
        a_offset += rest % d->size * d->strides[0];
        b_offset += rest % d->size * d->strides[1];
        rest /= d->size;
      }
      f(std::min(kChunk, inner.size - first), a_data + a_offset, inner.strides[0], b_data + b_offset,
        inner.strides[1]);
    }
  });
}

// Computes y <- keep y + scale x for n elements. Returns false if a result is not finite. The factors are
// passed by value: if the loop read them from a closure, the compiler could not vectorize it, because y might
// overlap the closure.
bool axpby_chunk(int64_t n, float keep, float* y, int64_t y_step, float scale, const float* x,
                 int64_t x_step) {
  float zero = 0;  // the sum of v - v: NaN if any v is not finite, else 0
  if (y_step == 1 && x_step == 1) {
#pragma omp simd reduction(+ : zero)
    for (int64_t i = 0; i < n; ++i) {
      const float v = keep * y[i] + scale * x[i];
      y[i] = v;
      zero += v - v;
    }
  } else {
    for (int64_t i = 0; i < n; ++i) {
      const float v = keep * y[i * y_step] + scale * x[i * x_step];
      y[i * y_step] = v;
      zero += v - v;
    }
  }
  return !std::isnan(zero);
}

// Writes through raw pointers must update the version counter, which autograd uses to detect changes.
void bump_version(const at::Tensor& x) {
  if (!x.is_inference()) x.unsafeGetTensorImpl()->bump_version();
}

// Returns true if the loops below support these tensors. Others are handled by ATen.
bool is_supported(const at::Tensor& a, const at::Tensor& b) {
  const auto plain = [](const at::Tensor& x) {
    return x.is_cpu() && x.scalar_type() == at::kFloat && x.layout() == at::kStrided && !x.is_neg();
  };
  return plain(a) && plain(b) && a.numel() > 0;
}

}  // namespace

void copy_strided(const at::Tensor& x, const at::Tensor& out) {
  if (!is_supported(x, out)) {
    out.copy_(x);
    return;
  }
  bump_version(out);
  for_each_inner_loop(x, out, [](int64_t n, const float* from, int64_t step, float* to, int64_t to_step) {
    for (int64_t i = 0; i < n; ++i) to[i * to_step] = from[i * step];
  });
}

bool axpby_(double decay, const at::Tensor& y, double alpha, const at::Tensor& x) {
  if (!is_supported(y, x)) {
    if (decay != 1) y.mul_(decay);
    y.add_(x, alpha);
    return false;
  }
  bump_version(y);
  const auto keep = static_cast<float>(decay);
  const auto scale = static_cast<float>(alpha);
  std::atomic<bool> finite = true;
  for_each_inner_loop(y, x, [&](int64_t n, float* to, int64_t to_step, const float* from, int64_t step) {
    if (!axpby_chunk(n, keep, to, to_step, scale, from, step)) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

double inner_product(const at::Tensor& a, const at::Tensor& b) {
  if (!is_supported(a, b) || !a.is_non_overlapping_and_dense() || a.strides() != b.strides()) {
    return at::dot(a.to(at::kDouble).reshape(-1), b.to(at::kDouble).reshape(-1)).item<double>();
  }
  const auto* const left = a.const_data_ptr<float>();
  const auto* const right = b.const_data_ptr<float>();
  // The partial sums are added in a fixed order, so the result does not depend on the number of threads.
  constexpr int64_t kChunk = 1 << 14;
  const int64_t size = a.numel(), chunks = (size + kChunk - 1) / kChunk;
  std::vector<double> partial(chunks);
  at::parallel_for(0, chunks, 2, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      double sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = chunk * kChunk; i < std::min(size, (chunk + 1) * kChunk); ++i)
        sum += static_cast<double>(left[i]) * right[i];
      partial[chunk] = sum;
    }
  });
  return std::accumulate(partial.begin(), partial.end(), 0.0);
}

}  // namespace tensorion
