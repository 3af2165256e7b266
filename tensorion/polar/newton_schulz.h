// The Newton-Schulz iteration: matrix products only, the way to the polar factor on accelerators.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensorion/coefficients.h"

namespace tensorion {

// Runs the scheduled steps X <- a X + (b R + c R^2) X, R = X X^T, from X = x / ||x||_F.
// x: (..., m, n) with m <= n, of the dtype to compute in; zero matrices stay zero. Wide matrices are iterated
// in the Gram domain (on R alone, m x m), with a restart from X after the second step and every third from
// there: without it the condition of the accumulated factor grows to 1e12.
// The result may lie in scratch memory.
at::Tensor newton_schulz(const at::Tensor& x, const Coefficients& schedule);

// The same with products in bfloat16, as accelerators compute them fastest; x is normalized in single
// precision. The steps are taken as published, with a X added in the accumulator of the last product: a
// matrix a I + b R + c R^2 that is rounded to bfloat16, and products of several of them, lose the small
// singular values.
at::Tensor newton_schulz_bf16(const at::Tensor& x, const Coefficients& schedule);

}  // namespace tensorion
