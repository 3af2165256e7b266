// Norms of a tensor x: those that unfoldings give, the relaxation of the
// tensor spectral norm that they define, that norm itself, and the norm of a
// convolution. With tau over all unfoldings, or those of a family, and
// x_(tau) = unfold(x, tau):
//   dual_norm      ||x||_Sigma^dagger = max_tau ||x_(tau)||_*
//   relaxed_norm   ||x||_Sigma = max { <m, x> : ||m||_Sigma^dagger <= 1 }
//                              = min { sum_tau ||xi^tau_(tau)||_2 : sum_tau xi^tau = x }
//   spectral_norm  ||x||_sigma = max { <x, u_1 (x) ... (x) u_d> : ||u_k|| = 1 }
//   ||x||_sigma <= ||x||_Sigma <= min_tau ||x_(tau)||_2.
// On a matrix (effective order 2) the last two are its largest singular value
// and the first its nuclear norm; on a vector or a scalar each is the Euclidean
// norm. Every norm of an empty tensor is 0.
//
// Inputs are bfloat16, float16, float32 or float64, of any strides and any
// scale, and finite.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "tensorion/unfolding.h"

namespace tensorion {

// The sum of the singular values of unfold(x, modes), in x's dtype. A scalar
// has no modes: its `modes` are empty. (at::nuclear_norm is another function,
// which argument-dependent lookup finds: call this one qualified.)
at::Tensor nuclear_norm(const at::Tensor& x, at::IntArrayRef modes);

// The largest nuclear norm of an unfolding, in x's dtype. Unfoldings that
// ||A||_* <= sqrt(min(rows, cols)) ||x||_F rules out are not decomposed.
// Its gradient, like that of nuclear_norm, is a polar factor, folded: a solution
// of the linear minimization oracle.
at::Tensor dual_norm(const at::Tensor& x, const Family& family = {});

// lower <= norm <= upper, rounding included.
struct NormBounds {
  double lower;
  double upper;
};

// Iterates until upper - lower <= tol * upper, tol in (0, 1). If 10000 iterations
// do not suffice, the bounds hold, but are further apart. An iteration decomposes
// up to 2^(d-1) - 1 unfoldings in double.
NormBounds relaxed_norm(const at::Tensor& x, double tol = 1e-3, const Family& family = {});

// Below: the best of `restarts` >= 1 seeded random starts, and one more, of the
// higher-order power method. Above: relaxed_norm. The two need not meet. `field` "real" is the paper's norm;
// "complex" takes the maximum of |<x, u_1 (x) ... (x) u_d>| over complex unit vectors, which may be larger,
// and for which ||T_K||_2 <= sqrt(h w) ||K||_sigma holds.
NormBounds spectral_norm(const at::Tensor& x, int64_t restarts = 32, const std::string& field = "real");

// The lower bound alone, converged to about 1e-5: for large tensors, whose upper bound takes long.
double spectral_norm_from_below(const at::Tensor& x, int64_t restarts = 32);

// ||T||_2 of the convolution x -> y on inputs of `input_size`,
//   y[o, p] = sum_{c, k} kernel[o, c, k] x[c, stride p + dilation k - left],
// for a kernel (c_out, c_in, size...) with one to three spatial modes. With stride 1
// the output has the size of the input: of reach = dilation (size - 1), left =
// reach / 2, rounded down, is padded on the left and the rest on the right. With
// stride s it is every s-th of those outputs, from the first on. Indices outside
// the input wrap around (padding "circular") or read 0 ("zeros"). `input_size`,
// `stride` and `dilation` have one entry for each spatial mode, or one for all.
// Circular with stride 1: exact up to rounding; otherwise to a relative 1e-6 or
// better.
double conv_norm(const at::Tensor& kernel, at::IntArrayRef input_size,
                 const std::string& padding = "circular", at::IntArrayRef stride = 1,
                 at::IntArrayRef dilation = 1);

}  // namespace tensorion
