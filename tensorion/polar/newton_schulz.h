// The Newton-Schulz iteration for the polar factor. It uses matrix products only. Step k computes
//   X <- a_k X + (b_k R + c_k R^2) X,  R = X X^T,
// starting from X = A / ||A||.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "tensorion/coefficients.h"
#include "tensorion/polar.h"

namespace tensorion {

// The norm by which the input is divided. Both norms are upper bounds of the spectral norm.
enum class Normalization {
  kFrobenius,  // ||X||_F
  kSchatten4,  // ||X X^T||_F^(1/2): tighter, and free because X X^T is needed anyway
};

struct NewtonSchulzSchedule {
  Coefficients steps;
  Normalization normalization = Normalization::kFrobenius;
};

// Returns the squared norms of matrices, in shape (..., 1, 1), from their Gram matrices r. The result is in
// fp32, or in fp64 if r is.
at::Tensor squared_norms(const at::Tensor& r, Normalization normalization);

// Returns the schedule for these options on this type of device. Throws if an option is out of range.
NewtonSchulzSchedule newton_schulz_schedule(const PolarOptions& options, c10::DeviceType device);

// Runs the iteration on the CPU, in the dtype of x, which is fp32 or fp64. x has shape (..., m, n) with m <=
// n. A zero matrix stays zero. The result may be in scratch memory.
//
// For wide matrices, several steps are combined: the product of their polynomials in R is accumulated as an m
// x m matrix and then applied to X. This happens after two steps at first, and then after every three.
// Otherwise the condition number of the accumulated matrix would grow to 1e12.
at::Tensor newton_schulz(const at::Tensor& x, const NewtonSchulzSchedule& schedule);

}  // namespace tensorion
