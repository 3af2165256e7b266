// The Newton-Schulz iteration for accelerators: X <- a X + (b R + c R^2) X, R = X X^T, for batches of
// matrices of one shape, in half precision. It launches few kernels and does not synchronize with the device.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensorion/polar/newton_schulz.h"

namespace tensorion {

// Returns the dtype of the iteration: fp16 if this reduces the quality by less than 0.01, else fp32. Rounding
// errors grow from step to step if the polynomials are steep near 1 ("cans"), or if many polynomials do not
// converge to 1 (seven steps of "muon").
at::ScalarType iteration_dtype(const Coefficients& steps);

// Returns a divisor such that Gram matrices do not overflow in fp16 if elements of matrices with n columns
// are at most its reciprocal.
double half_precision_margin(int64_t n);

struct NewtonSchulzBatch {
  at::Tensor x;         // (k, m, n)
  at::Tensor attained;  // (k): <input, x> of each matrix; undefined unless requested
};

// Runs the iteration on each matrix of x (k, m, n), m <= n, in the dtype of x. Elements must be at most 1 /
// half_precision_margin(n). x is overwritten. Zero matrices stay zero, and matrices that contain NaN become
// NaN.
NewtonSchulzBatch newton_schulz_batch(const at::Tensor& x, const NewtonSchulzSchedule& schedule,
                                      bool with_attained = false);

// Returns the approximate polar factors of a tensor (..., m, n) on an accelerator, for any scale and any m
// and n.
at::Tensor newton_schulz_on_device(const at::Tensor& a, const NewtonSchulzSchedule& schedule);

}  // namespace tensorion
