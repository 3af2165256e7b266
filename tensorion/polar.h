// The orthogonal polar factor polar(A) = U V^T of A = U Sigma V^T: the linear minimization oracle of the
// spectral norm. The quality of an answer X is q = <A, X> / (||X||_2 ||A||_*), at most 1.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "tensorion/coefficients.h"

namespace tensorion {

struct PolarOptions {
  // "halley":        rational passes by Cholesky, repeated until q >= 0.97 is certified; the best on CPUs.
  // "newton_schulz": polynomial, matrix products only; the best on accelerators (there in fp16).
  // "svd":           exact.
  // "auto":          halley on CPU, newton_schulz elsewhere.
  std::string method = "auto";
  // The rows of "newton_schulz". If there are none: on CPUs "muon"; elsewhere the rows of Polar Express that
  // suit the number of steps best, after a normalization that is closer than Muon's (docs/math.md).
  std::optional<Coefficients> ns_coefficients = std::nullopt;
  // If not given: 5, or on accelerators 6 if there are no coefficients either.
  std::optional<int64_t> ns_steps = std::nullopt;

  // Throws if an option is out of range.
  void check() const;
};

// q that "halley" certifies before it stops.
inline constexpr double kPolarQuality = 0.97;

// The polar factor of each matrix of a (..., m, n) tensor, in its dtype. Zero gives zero; the answer does not
// depend on the scale of the input. fp16 and bf16 are computed in fp32 on CPUs. Input that is not finite is
// an error; with "newton_schulz" on accelerators it gives NaN instead, since finding it would stall the
// device. The other methods run on the CPU, wherever the input is.
at::Tensor polar(const at::Tensor& a, const PolarOptions& options = {});

}  // namespace tensorion
