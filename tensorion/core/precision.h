// Constants and guards for the floating-point precision of computations.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cmath>
#include <limits>

namespace tensorion {

// Returns the distance from 1 to the next larger number. Computations use fp32 or fp64, so every dtype other
// than fp64 counts as fp32.
inline double machine_epsilon(at::ScalarType dtype) {
  return dtype == at::kDouble ? std::numeric_limits<double>::epsilon()
                              : std::numeric_limits<float>::epsilon();
}

// If the squared Frobenius norm of a matrix is in [1 / kModerateSquares, kModerateSquares], squares of its
// elements do not overflow in single precision, and those that underflow are negligible.
inline constexpr double kModerateSquares = 1e12;

// Returns x * 2^exponent. The result is exact unless it is denormal. The scale is applied as two factors,
// because a single factor could overflow or underflow.
inline at::Tensor scale_by_power_of_two(const at::Tensor& x, int exponent) {
  return x.mul(std::ldexp(1.0, exponent / 2)).mul_(std::ldexp(1.0, exponent - exponent / 2));
}

// Disables torch.autocast in its scope, because the functions of this library choose their own precision.
class NoAutocastGuard {
 private:
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::autocast_dispatch_keyset};
};

}  // namespace tensorion
