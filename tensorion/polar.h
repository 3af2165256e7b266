// The orthogonal polar factor polar(A) = U V^T of A = U Sigma V^T: the linear minimization oracle of the
// spectral norm. The quality of an answer X is q = <A, X> / (||X||_2 ||A||_*), at most 1.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "tensorion/coefficients.h"

namespace tensorion {

struct PolarOptions {
  // "halley":        rational passes by Cholesky, repeated until q >= 0.97 is certified; the best on CPUs.
  // "newton_schulz": polynomial, matrix products only; the best on accelerators (there in bf16).
  // "svd":           exact.
  // "auto":          halley on CPU, newton_schulz elsewhere.
  std::string method = "auto";
  Coefficients ns_coefficients = named_coefficients("muon");
  int64_t ns_steps = 5;

  // Throws where an option is out of range.
  void check() const;
};

// q that "halley" certifies before it stops.
inline constexpr double kPolarQuality = 0.97;

// The polar factor of each matrix of a (..., m, n) tensor, in its dtype. Zero gives zero; the answer does not
// depend on the scale of the input. fp16 and bf16 are computed in fp32 on CPU. Non-finite input is an error
// on CPU; elsewhere it gives non-finite output, since finding it would stall the device.
at::Tensor polar(const at::Tensor& a, const PolarOptions& options = {});

}  // namespace tensorion
