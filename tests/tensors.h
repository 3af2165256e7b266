// Tensors whose norms are known, and the layouts and scales that no norm may
// notice.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support.h"

namespace tensorion::testing {

// How far an upper bound that allows for the worst rounding in double is above a norm of 1: all errors of a
// sum over the entries have one sign.
inline double certified_rounding(const at::Tensor& x) { return rounding(at::kDouble, x.numel() * x.numel()); }

// u_1 (x) ... (x) u_d.
inline at::Tensor outer(const std::vector<at::Tensor>& vectors) {
  auto product = vectors[0];
  for (size_t k = 1; k < vectors.size(); ++k) product = product.unsqueeze(-1) * vectors[k];
  return product;
}

inline at::Tensor orthonormal(int64_t rows, int64_t cols, uint64_t seed) {
  return std::get<0>(at::linalg_qr(gaussian({rows, cols}, seed, at::kDouble)));
}

// sum_i lambda_i u_i (x) v_i (x) ..., the factors of each mode orthonormal. Its
// spectral norm is max |lambda|, the nuclear norm of each unfolding sum |lambda|.
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

// a (e_0 e_0 e_1 + e_0 e_1 e_0 + e_1 e_0 e_0) + b e_1 e_1 e_1, in 2 x 2 x 2: for
// b = 0 the (unnormalized) W state.
inline at::Tensor w_state(double a = 1, double b = 0) {
  return at::tensor({0.0, a, a, 0.0, a, 0.0, 0.0, b}, options(at::kDouble)).view({2, 2, 2});
}

// x(u, v, w) = det[u, v, w]: spectral norm 1, relaxed norm sqrt(2).
inline at::Tensor determinant() {
  auto x = at::zeros({3, 3, 3}, options(at::kDouble));
  for (int64_t i = 0; i < 3; ++i) {
    x[i][(i + 1) % 3][(i + 2) % 3] = 1;
    x[i][(i + 2) % 3][(i + 1) % 3] = -1;
  }
  return x;
}

// x(A, B, C) = tr(A B C) for n x n matrices: spectral norm 1, relaxed sqrt(n).
inline at::Tensor matrix_product(int64_t n) {
  const auto eye = at::eye(n, options(at::kDouble));
  return at::einsum("jk,lm,ni->ijklmn", {eye, eye, eye}).reshape({n * n, n * n, n * n});
}

// The same values in other strides: reversed modes, or every second element.
inline std::vector<at::Tensor> in_other_layouts(const at::Tensor& x) {
  std::vector<int64_t> reversed(x.dim());
  for (int64_t i = 0; i < x.dim(); ++i) reversed[i] = x.dim() - 1 - i;
  auto strided = at::stack({x, at::full_like(x, 7)}, -1).select(-1, 0);
  return {x.permute(reversed).contiguous().permute(reversed), strided};
}

}  // namespace tensorion::testing
