// Cholesky factorizations and inverses of symmetric matrices, in place. Matrices are row-major, and only
// their lower triangle, row >= column, is read and written.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace tensorion {

// Replaces the lower triangle of w by the Cholesky factor of w. Only the lower triangle is read; the upper
// triangle becomes undefined. Returns log det w, or nullopt if w is not numerically positive definite.
std::optional<double> cholesky_(at::Tensor& w);

// Replaces the Cholesky factor of a matrix, as computed by cholesky_, by the lower triangle of the inverse of
// that matrix. This costs twice as much as the factorization.
void cholesky_inverse_(at::Tensor& w);

}  // namespace tensorion
