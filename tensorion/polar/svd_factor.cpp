#include "tensorion/polar/svd_factor.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tensorion/core/mkl_single_thread_guard.h"
#include "tensorion/core/precision.h"

namespace tensorion {

SvdFactors svd_factors(const at::Tensor& a) {
  const auto largest = a.abs().amax({-2, -1}, /*keepdim=*/true).to(at::kDouble);
  TORCH_CHECK_VALUE(largest.isfinite().all().item<bool>(),
                    "[tensorion.polar] expected a finite matrix, got one that contains ",
                    largest.isnan().any().item<bool>() ? "nan" : "inf");
  const auto scale = at::where(largest > 0, largest, 1);
  const auto work = a.to(at::kDouble) / scale;
  const MklSingleThreadGuard single_thread;
  const auto [u, s, vh] = at::linalg_svd(work, /*full_matrices=*/false);
  const double side = std::sqrt(static_cast<double>(std::max(a.size(-2), a.size(-1))));
  const auto noise = at::linalg_vector_norm(s, 2, {-1}, /*keepdim=*/true) *
                     (machine_epsilon(compute_type(a)) + 8 * side * machine_epsilon(at::kDouble));
  const auto kept = (s > noise).to(at::kDouble);
  const auto x = at::matmul(u * kept.unsqueeze(-2), vh);
  // <A, X> is a more accurate nuclear norm than the sum of s. Since X maximizes <A, X>, a rounding error of X
  // has only a second-order effect.
  const auto scales = scale.squeeze(-1).squeeze(-1);
  return {x.to(a.scalar_type()), (work * x).sum({-2, -1}) * scales, (s * (1 - kept)).sum(-1) * scales};
}

PolarFactor svd_factor(const at::Tensor& a) {
  const auto factors = svd_factors(a.unsqueeze(0));
  const double product = factors.product.item<double>();
  const double slack = product * 4 * machine_epsilon(compute_type(a));
  const double value = product - slack;
  return {factors.x[0], value, {value, product + factors.noise.item<double>() + slack}};
}

}  // namespace tensorion
