// Work on symmetric matrices at half the price: products of which only the lower blocks are computed, and
// inverses in place. Matrices are row-major; "lower" means row >= column.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace tensorion {

// a a^T for a of shape (..., m, n).
at::Tensor gram(const at::Tensor& a);

// a b for symmetric a and b that commute, so that the product is symmetric.
at::Tensor commuting_product(const at::Tensor& a, const at::Tensor& b);

// Copies the lower triangle of the square, row-major matrix w to the upper one.
void mirror_lower_(at::Tensor& w);

// Replaces the lower triangle of w by that of w^-1; the upper triangle is left undefined. w is m x m,
// row-major; only its lower triangle is read. Returns log det w, or nothing where w is not positive definite.
std::optional<double> invert_positive_(at::Tensor& w);

}  // namespace tensorion
