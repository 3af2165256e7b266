#include "tensorion/core/gemm.h"

#include <ATen/ATen.h>
#include <ATen/Version.h>

#include <algorithm>

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

// True if MKL would use AVX2 although the CPU has AVX-512.
bool is_mkl_limited_to_avx2() {
#if defined(__x86_64__) && defined(__GNUC__)
  return at::get_cpu_capability() == "AVX512" && !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

}  // namespace

bool uses_onednn(const at::Tensor& x) {
  static const bool is_faster = at::native::mkldnn_matmul && at::hasMKLDNN() && is_mkl_limited_to_avx2();
  return is_faster && x.is_cpu() && x.scalar_type() == at::kFloat && at::globalContext().userEnabledMkldnn();
}

void gemm_out(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, double alpha, double beta) {
  const int64_t smallest = std::min({out.size(0), out.size(1), a.size(1)});
  if (uses_onednn(out) && smallest >= kMinSide && out.numel() * a.size(1) >= kMinMultiplications) {
    // oneDNN is fast only if the rows of the result are contiguous.
    if (out.stride(1) == 1) {
      at::native::mkldnn_matmul(a, b, out, static_cast<float>(beta), static_cast<float>(alpha));
    } else {
      at::native::mkldnn_matmul(b.t(), a.t(), out.t(), static_cast<float>(beta), static_cast<float>(alpha));
    }
    return;
  }
  auto result = out;
  if (beta == 0 && alpha == 1) {
    at::mm_out(result, a, b);
  } else {
    at::addmm_out(result, out, a, b, beta, alpha);
  }
}

}  // namespace tensorion
