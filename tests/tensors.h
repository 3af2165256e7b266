// Tensors with known norms, and copies of tensors in other memory layouts.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support.h"

namespace tensorion::testing {

// Returns how far a certified upper bound of a norm of 1 may exceed 1. The bound allows for the worst
// rounding in double precision, in which all errors of a sum over the elements have the same sign.
inline double certified_rounding(const at::Tensor& x) { return rounding(at::kDouble, x.numel() * x.numel()); }

// Returns the outer product u_1 (x) ... (x) u_d.
inline at::Tensor outer(const std::vector<at::Tensor>& vectors) {
  auto product = vectors[0];
  for (size_t k = 1; k < vectors.size(); ++k) product = product.unsqueeze(-1) * vectors[k];
  return product;
}

inline at::Tensor orthonormal(int64_t rows, int64_t cols, uint64_t seed) {
  return std::get<0>(at::linalg_qr(gaussian({rows, cols}, seed, at::kDouble)));
}

// Returns sum_i lambda_i u_i (x) v_i (x) ..., in which the vectors of each mode are orthonormal. The spectral
// norm is max |lambda|, and the nuclear norm of each unfolding is sum |lambda|.
inline at::Tensor orthogonally_decomposable(const std::vector<double>& lambda, at::IntArrayRef shape,
                                            uint64_t seed) {
  auto x = at::zeros(shape, options(at::kDouble));
  for (size_t i = 0; i < lambda.size(); ++i) {
    std::vector<at::Tensor> vectors;
    for (size_t k = 0; k < shape.size(); ++k) {
      const auto factor = orthonormal(shape[k], static_cast<int64_t>(lambda.size()), seed + k);
      vectors.push_back(factor.select(1, static_cast<int64_t>(i)));
    }
    x += lambda[i] * outer(vectors);
  }
  return x;
}

// Returns a (e_0 e_0 e_1 + e_0 e_1 e_0 + e_1 e_0 e_0) + b e_1 e_1 e_1 of shape 2 x 2 x 2. For b = 0 this is
// the unnormalized W state.
inline at::Tensor w_state(double a = 1, double b = 0) {
  return at::tensor({0.0, a, a, 0.0, a, 0.0, 0.0, b}, options(at::kDouble)).view({2, 2, 2});
}

// The tensor x(u, v, w) = det[u, v, w]. Its spectral norm is 1 and its relaxed norm is sqrt(2).
inline at::Tensor determinant() {
  auto x = at::zeros({3, 3, 3}, options(at::kDouble));
  for (int64_t i = 0; i < 3; ++i) {
    x[i][(i + 1) % 3][(i + 2) % 3] = 1;
    x[i][(i + 2) % 3][(i + 1) % 3] = -1;
  }
  return x;
}

// The tensor x(A, B, C) = tr(A B C) of n x n matrices. Its spectral norm is 1 and its relaxed norm is
// sqrt(n).
inline at::Tensor matrix_product(int64_t n) {
  const auto eye = at::eye(n, options(at::kDouble));
  return at::einsum("jk,lm,ni->ijklmn", {eye, eye, eye}).reshape({n * n, n * n, n * n});
}

// Returns the same values with other strides: reversed modes, and every second element of a larger tensor.
inline std::vector<at::Tensor> in_other_layouts(const at::Tensor& x) {
  std::vector<int64_t> reversed(x.dim());
  for (int64_t i = 0; i < x.dim(); ++i) reversed[i] = x.dim() - 1 - i;
  auto strided = at::stack({x, at::full_like(x, 7)}, -1).select(-1, 0);
  return {x.permute(reversed).contiguous().permute(reversed), strided};
}

}  // namespace tensorion::testing
