#include "tensorion/core/gemm.h"

#include <ATen/ATen.h>
#include <ATen/Version.h>

#include <algorithm>

#include "tensorion/core/scratch_arena.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif

// The function that at::mm calls for products in 16 bits. It computes result <- alpha mat1 mat2 + beta
// result. torch exports it, but does not install its header. The pointer is null if the symbol is missing.
namespace at::native {
__attribute__((weak)) void mkldnn_matmul(const Tensor& mat1, const Tensor& mat2, const Tensor& result,
                                         float beta, float alpha);
}

namespace tensorion {
namespace {

// Smaller products are faster with MKL, because oneDNN takes 5 to 10 microseconds to look up its code. This
// is the number of multiplications of a 128 x 128 matrix with its transpose.
constexpr int64_t kMinMultiplications = int64_t{1} << 21;
// torch passes a strided result with a side of 1 to oneDNN in a wrong layout, which corrupts memory.
constexpr int64_t kMinSide = 16;
// oneDNN is slow if the right factor is row-major and has many rows. Computed in panels of 384 columns,
// products take 0.74 (3072 x 3072 by 3072 x 3072), 0.85 (1536) and 0.90 (1280), but 1.02 (1152) of the time
// on two threads.
constexpr int64_t kMinSplitRows = 1280;
constexpr int64_t kSplitWidth = 384;

// True if the CPU is made by AMD and executes 512-bit instructions at full width: family 26 (Zen 5) and
// later. On family 25 (Zen 4), oneDNN takes 1.05 (two threads) and 1.14 (one thread) times as long as MKL for
// a balanced step of ResNet-18, and 0.93 and 1.00 times as long for flattened kernels.
bool is_wide_amd_cpu() {
#if defined(__x86_64__) && defined(__GNUC__)
  constexpr unsigned kZen5Family = 26;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__builtin_cpu_is("amd") || !__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return false;
  const unsigned base = eax >> 8 & 0xf, extended = eax >> 20 & 0xff;
  return base + (base == 0xf ? extended : 0) >= kZen5Family;
#else
  return false;
#endif
}

bool has_onednn() { return at::native::mkldnn_matmul && at::hasMKLDNN(); }

}  // namespace

bool uses_onednn(const at::Tensor& x) {
  static const bool is_faster = has_onednn() && at::get_cpu_capability() == "AVX512" && is_wide_amd_cpu();
  return is_faster && x.is_cpu() && x.scalar_type() == at::kFloat && at::globalContext().userEnabledMkldnn();
}

bool supports_onednn(const at::Tensor& out, const at::Tensor& a) {
  const int64_t smallest = std::min({out.size(0), out.size(1), a.size(1)});
  return has_onednn() && out.is_cpu() && out.scalar_type() == at::kFloat && smallest >= kMinSide &&
         out.numel() * a.size(1) >= kMinMultiplications;
}

void onednn_gemm_out(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, double alpha,
                     double beta) {
  // oneDNN is fast only if the rows of the result are contiguous.
  if (out.stride(1) != 1 && out.stride(0) == 1) return onednn_gemm_out(out.t(), b.t(), a.t(), alpha, beta);
  const int64_t cols = out.size(1);
  const bool is_split = b.stride(1) == 1 && b.size(0) >= kMinSplitRows;
  for (int64_t first = 0, count = 0; first < cols; first += count) {
    // The last panel takes the rest, since a narrow one would not be supported (kMinSide).
    count = is_split && cols - first >= 2 * kSplitWidth ? kSplitWidth : cols - first;
    at::native::mkldnn_matmul(a, b.narrow(1, first, count), out.narrow(1, first, count),
                              static_cast<float>(beta), static_cast<float>(alpha));
  }
}

void gemm_out(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, double alpha, double beta) {
  if (uses_onednn(out) && supports_onednn(out, a)) return onednn_gemm_out(out, a, b, alpha, beta);
  auto result = out;
  if (beta == 0 && alpha == 1) {
    at::mm_out(result, a, b);
  } else {
    at::addmm_out(result, out, a, b, beta, alpha);
  }
}

at::Tensor gemm(const at::Tensor& a, const at::Tensor& b) {
  const int64_t rows = a.size(0), cols = b.size(1);
  auto out = b.is_contiguous() ? scratch({rows, cols}, b.options()) : scratch({cols, rows}, b.options()).mT();
  gemm_out(out, a, b);
  return out;
}

}  // namespace tensorion
