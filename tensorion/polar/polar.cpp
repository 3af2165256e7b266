#include "tensorion/polar.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tensorion/core/mkl_single_thread_guard.h"
#include "tensorion/core/parallel.h"
#include "tensorion/core/precision.h"
#include "tensorion/core/strided.h"
#include "tensorion/polar/newton_schulz.h"
#include "tensorion/polar/newton_schulz_batch.h"
#include "tensorion/polar/nuclear_norm_estimator.h"
#include "tensorion/polar/polar_factor.h"
#include "tensorion/polar/svd_factor.h"

namespace tensorion {
namespace {

// Matrices of a batch whose smaller side is at least this are computed one at a time, on all threads. Smaller
// ones are computed in parallel.
constexpr int64_t kLargeSide = 256;
// Matrices of size m x n with m^2 n up to this are computed on one thread. Measured with two threads, in two
// processes, since the time to start threads differs between processes: one thread takes 0.65 or 0.95 times
// as long for 48 x 96, 0.7 or 1.02 times for 64 x 128, and 0.75 or 1.13 times for 48 x 432.
constexpr int64_t kSingleThreadProducts = int64_t{1} << 18;
// The number of elements in one batched SVD.
constexpr int64_t kSvdBatchElements = 1 << 16;

at::Tensor newton_schulz_factor(const at::Tensor& a, const PolarOptions& options) {
  const auto schedule = newton_schulz_schedule(options, a.device().type());
  if (!a.is_cpu()) return newton_schulz_on_device(a, schedule);
  const bool tall = a.size(-2) > a.size(-1);
  const auto x = newton_schulz((tall ? a.mT() : a).to(compute_type(a)), schedule).to(a.scalar_type());
  return tall ? x.mT() : x;
}

// Returns the polar factor of one matrix on the CPU by a method other than "newton_schulz".
PolarFactor single_factor(const at::Tensor& a, const std::string& method) {
  TORCH_INTERNAL_ASSERT(a.is_cpu());
  const MklSingleThreadGuard single_thread(std::min(a.size(0), a.size(1)) * a.numel() <=
                                           kSingleThreadProducts);
  return method == "svd" || is_tiny(a) ? svd_factor(a) : NuclearNormEstimator(a).factor();
}

}  // namespace

void check_polar_input(const at::Tensor& a) {
  TORCH_CHECK_TYPE(at::isFloatingType(a.scalar_type()) && !at::isFloat8Type(a.scalar_type()),
                   "[tensorion.polar] expected a real floating-point tensor, got ", a.scalar_type());
  TORCH_CHECK_VALUE(a.layout() == at::kStrided, "[tensorion.polar] expected a dense tensor, got ",
                    a.layout());
  TORCH_CHECK_VALUE(a.dim() >= 2, "[tensorion.polar] expected (..., m, n), got shape ", a.sizes());
}

at::ScalarType compute_type(const at::Tensor& a) {
  return a.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

double largest_entry(const at::Tensor& a) {
  const auto [low, high] = at::aminmax(a);
  const double largest = std::max(-low.item<double>(), high.item<double>());
  TORCH_CHECK_VALUE(std::isfinite(largest),
                    "[tensorion.polar] expected a finite matrix, got one that contains ",
                    std::isnan(largest) ? "nan" : "inf");
  return largest;
}

std::string resolve_polar_method(const std::string& method, const at::Tensor& a) {
  if (method != "auto") return method;
  return a.is_cpu() ? "halley" : "newton_schulz";
}

void PolarOptions::check() const {
  TORCH_CHECK_VALUE(method == "auto" || method == "halley" || method == "newton_schulz" || method == "svd",
                    "[tensorion.polar] method must be 'auto', 'halley', 'newton_schulz' or 'svd', got '",
                    method, "'");
  newton_schulz_schedule(*this, c10::kCPU);
}

PolarFactor certified_polar(const at::Tensor& a, const PolarOptions& options) {
  const NoAutocastGuard no_autocast;
  check_polar_input(a);
  options.check();
  TORCH_CHECK_VALUE(a.dim() == 2, "[tensorion.polar] expected one matrix, got shape ", a.sizes());
  if (a.numel() == 0) return {at::zeros_like(a), 0, {}};
  const auto method = resolve_polar_method(options.method, a);
  if (method != "newton_schulz") return single_factor(a.detach(), method);
  NuclearNormEstimator estimator(a.detach());
  for (int level = 0; level < 3; ++level) estimator.refine();
  auto x = newton_schulz_factor(a.detach(), options);
  const double norm = largest_value(newton_schulz_schedule(options, a.device().type()).steps);
  const double value = inner_product(a, x) / std::max(1.0, norm);
  return {x, value, estimator.bounds()};
}

at::Tensor polar_scratch(const at::Tensor& a, const PolarOptions& options) {
  const NoAutocastGuard no_autocast;
  check_polar_input(a);
  const auto method = resolve_polar_method(options.method, a);
  if (a.numel() == 0) return at::zeros_like(a);
  return method == "newton_schulz" ? newton_schulz_factor(a, options) : single_factor(a, method).x;
}

at::Tensor polar(const at::Tensor& a, const PolarOptions& options) {
  const NoAutocastGuard no_autocast;
  check_polar_input(a);
  options.check();
  const auto input = a.detach();
  if (a.numel() == 0) return at::zeros_like(input);
  const auto method = resolve_polar_method(options.method, a);
  if (method == "newton_schulz") {
    if (a.is_cpu()) largest_entry(input);
    return newton_schulz_factor(input, options).clone();
  }
  // The control flow of these methods depends on computed values, each of which would synchronize with the
  // device.
  if (!a.is_cpu()) return polar(input.cpu(), options).to(a.device());
  if (a.dim() == 2) return single_factor(input, method).x.clone();
  const auto matrices = input.reshape({-1, a.size(-2), a.size(-1)});
  auto out = at::empty_like(matrices, at::MemoryFormat::Contiguous);
  const int64_t count = matrices.size(0), side = std::min(a.size(-2), a.size(-1));
  const bool is_parallel = side < kLargeSide;
  if (method == "svd" || is_tiny(a)) {
    const int64_t group = std::max<int64_t>(1, kSvdBatchElements / (a.size(-2) * a.size(-1)));
    parallel_for_with_tls(
        0, (count + group - 1) / group, is_parallel ? 1 : count, [&](int64_t begin, int64_t end) {
          for (int64_t first = begin * group; first < std::min(count, end * group); first += group) {
            const int64_t length = std::min(group, count - first);
            out.narrow(0, first, length).copy_(svd_factors(matrices.narrow(0, first, length)).x);
          }
        });
  } else {
    parallel_for_with_tls(0, count, is_parallel ? 1 : count, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i].copy_(single_factor(matrices[i], method).x);
    });
  }
  return out.reshape(a.sizes());
}

}  // namespace tensorion
