// The Newton-Schulz iteration: matrix products only, the way to the polar factor on accelerators.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "tensorion/coefficients.h"
#include "tensorion/polar.h"

namespace tensorion {

// What singular values are divided by before the first step; either is at least the largest of them.
enum class Normalization {
  kFrobenius,  // ||X||_F
  kSchatten4,  // ||X X^T||_F^(1/2), which is closer, and costs nothing once X X^T is there
};

struct NewtonSchulzSchedule {
  Coefficients steps;
  Normalization normalization = Normalization::kFrobenius;
};

// The squares of the norms that matrices are divided by, of shape (..., 1, 1), from their Gram matrices r; of
// half precision, in single.
at::Tensor squared_norms(const at::Tensor& r, Normalization normalization);

// What the options mean on a device. Throws if they are out of range.
NewtonSchulzSchedule newton_schulz_schedule(const PolarOptions& options, c10::DeviceType device);

// Runs the scheduled steps X <- a X + (b R + c R^2) X, R = X X^T, from X = x / ||x||.
// x: (..., m, n) with m <= n, on the CPU, of the dtype to compute in; zero matrices stay zero. Wide matrices
// are iterated in the Gram domain (on R alone, m x m), with a restart from X after the second step and every
// third from there: without it the condition of the accumulated factor grows to 1e12.
// The result may lie in scratch memory.
at::Tensor newton_schulz(const at::Tensor& x, const NewtonSchulzSchedule& schedule);

}  // namespace tensorion
