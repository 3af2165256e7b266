// The tensor spectral norm from below, where the library's certified bounds take too long: kernels of
// hundreds of channels, thousands of times.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tensorion::lab {

// The largest <x, u_1 (x) ... (x) u_d> over unit vectors that the higher-order power method finds from seeded
// random starts: with all vectors but one fixed, the best u_k is the contraction of x with the others,
// normalized. A lower bound of ||x||_sigma; on a matrix, up to convergence, its largest singular value.
double spectral_norm_from_below(const at::Tensor& x, int64_t starts);

}  // namespace tensorion::lab
