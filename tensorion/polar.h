// The orthogonal polar factor polar(A) = U V^T of A = U Sigma V^T. It solves the linear minimization oracle
// of the spectral norm. The quality of an approximation X is q = <A, X> / (||X||_2 ||A||_*) <= 1.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "tensorion/coefficients.h"

namespace tensorion {

struct PolarOptions {
  // "halley"         a rational iteration with Cholesky factorizations, repeated until q >= kPolarQuality is
  //                  certified
  // "newton_schulz"  a polynomial iteration with matrix products only, in fp16 on accelerators
  // "svd"            exact, in double precision
  // "auto"           "halley" on the CPU, "newton_schulz" on other devices
  std::string method = "auto";
  // The coefficients of "newton_schulz". The default is "muon" on the CPU. On other devices it is the Polar
  // Express table for the number of steps, with a tighter normalization than Muon's (docs/math.md).
  std::optional<Coefficients> ns_coefficients = std::nullopt;
  // The number of steps of "newton_schulz". The default is 5, or 6 on accelerators if ns_coefficients is not
  // set.
  std::optional<int64_t> ns_steps = std::nullopt;

  // Throws if an option is not valid.
  void check() const;
};

// The quality q at which "halley" stops. Rounding errors are part of the certificate; in single precision
// they are estimated.
inline constexpr double kPolarQuality = 0.97;

// Returns the polar factor of each matrix of a tensor of shape (..., m, n), in its dtype. The result does not
// depend on the scale of the input, and the factor of a zero matrix is zero. On the CPU, fp16 and bf16 inputs
// are computed in fp32. "halley" and "svd" run on the CPU even if the input is on another device.
//
// Throws if the input is not a dense, real, floating-point tensor with at least two modes, or if a value is
// not finite. "newton_schulz" on an accelerator returns NaN for such values instead, because the check would
// synchronize with the device.
at::Tensor polar(const at::Tensor& a, const PolarOptions& options = {});

}  // namespace tensorion
