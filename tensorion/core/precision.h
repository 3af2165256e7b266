// The precision that computations run in.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cmath>
#include <limits>

namespace tensorion {

// The distance from 1 to the next larger number, of the two dtypes that matrices are computed in.
inline double machine_epsilon(at::ScalarType dtype) {
  return dtype == at::kDouble ? std::numeric_limits<double>::epsilon()
                              : std::numeric_limits<float>::epsilon();
}

// If the sum of the squares of a matrix is within [1 / kModerateSquares, kModerateSquares], no square has
// left the range of single precision in a way that matters.
inline constexpr double kModerateSquares = 1e12;

// x * 2^exponent, in two factors because one may leave the range of the dtype. It rounds nothing, but for
// denormals.
inline at::Tensor scale_by_power_of_two(const at::Tensor& x, int exponent) {
  return x.mul(std::ldexp(1.0, exponent / 2)).mul_(std::ldexp(1.0, exponent - exponent / 2));
}

// While it lives, torch.autocast has no effect: functions choose their precision themselves.
class NoAutocastGuard {
 private:
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::autocast_dispatch_keyset};
};

}  // namespace tensorion
