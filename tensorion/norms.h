// Norms of tensors and convolutions. With tau over all unfoldings of x, or over those of a family, and
// x_(tau) = unfold(x, tau), the norms are
//   dual_norm      ||x||_Sigma^dagger = max_tau ||x_(tau)||_*
//   relaxed_norm   ||x||_Sigma = max { <m, x> : ||m||_Sigma^dagger <= 1 }
//                              = min { sum_tau ||xi^tau_(tau)||_2 : sum_tau xi^tau = x }
//   spectral_norm  ||x||_sigma = max { <x, u_1 (x) ... (x) u_d> : ||u_k|| = 1 }
// and ||x||_sigma <= ||x||_Sigma <= min_tau ||x_(tau)||_2.
//
// For a matrix (effective order 2), relaxed_norm and spectral_norm are the largest singular value and
// dual_norm is the nuclear norm. For a vector or a scalar, each norm is the Euclidean norm. Every norm of an
// empty tensor is 0.
//
// Inputs are dense tensors of dtype bfloat16, float16, float32 or float64, with any strides. Values of any
// magnitude are accepted. All functions throw if the dtype or the layout is another one, or if a value is not
// finite.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "tensorion/unfolding.h"

namespace tensorion {

// Returns the sum of the singular values of unfold(x, modes), in the dtype of x. A scalar has no modes, so
// `modes` must be empty for it. Call this function with its namespace: argument-dependent lookup also finds
// at::nuclear_norm, which is a different function.
at::Tensor nuclear_norm(const at::Tensor& x, at::IntArrayRef modes);

// Returns the largest nuclear norm of an unfolding, in the dtype of x. Unfoldings that the bound
// ||A||_* <= sqrt(min(rows, cols)) ||x||_F rules out are not decomposed. The gradients of this function and
// of nuclear_norm are folded polar factors, so they solve the linear minimization oracle.
at::Tensor dual_norm(const at::Tensor& x, const Family& family = {});

// lower <= norm <= upper. The bounds allow for rounding errors.
struct NormBounds {
  double lower;
  double upper;
};

// Iterates until upper - lower <= tol * upper, with tol in (0, 1). If 10000 iterations do not suffice, the
// bounds are valid but further apart. An iteration decomposes up to 2^(d-1) - 1 unfoldings in double
// precision.
NormBounds relaxed_norm(const at::Tensor& x, double tol = 1e-3, const Family& family = {});

// Bounds the tensor spectral norm. The lower bound is the best result of the higher-order power method from
// `restarts` >= 1 seeded random starts and the higher-order SVD. The upper bound is relaxed_norm, so the
// bounds can stay apart. With `field` "real" this is the paper's norm. With "complex" it is the maximum of
// |<x, u_1 (x) ... (x) u_d>| over complex unit vectors. That norm can be larger, and the bound
// ||T_K||_2 <= sqrt(h w) ||K||_sigma of a convolution T_K with kernel K holds for it.
NormBounds spectral_norm(const at::Tensor& x, int64_t restarts = 32, const std::string& field = "real");

// Returns only the lower bound of spectral_norm, converged to about 1e-5. Use it for large tensors, for which
// the upper bound is expensive.
double spectral_norm_from_below(const at::Tensor& x, int64_t restarts = 32);

// Returns ||T||_2 of the convolution T: x -> y on inputs of size `input_size`,
//   y[o, p] = sum_{c, k} kernel[o, c, k] x[c, stride p + dilation k - left],
// for a kernel of shape (c_out, c_in, size...) with one to three spatial modes.
//
// With stride 1 the output has the size of the input. The total padding is dilation (size - 1), of which
// left = floor(dilation (size - 1) / 2) is on the left. With stride s the output consists of every s-th of
// these elements, starting with the first. `padding` is "circular" (indices wrap around) or "zeros".
// `input_size`, `stride` and `dilation` have one entry for each spatial mode, or one entry for all of them.
//
// The result for "circular" with stride 1 is exact up to rounding. Otherwise it is iterated to a relative
// accuracy of 1e-6 or better.
double conv_norm(const at::Tensor& kernel, at::IntArrayRef input_size,
                 const std::string& padding = "circular", at::IntArrayRef stride = 1,
                 at::IntArrayRef dilation = 1);

}  // namespace tensorion
