// Operations on symmetric matrices at about half the cost: products that compute only the lower blocks, and
// inverses in place. Matrices are row-major; "lower" means row >= column.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace tensorion {

// True if running two factorizations on one thread each beats running them in sequence on all threads. That
// is so for two or three threads, from which LAPACK's own parallelism gains little.
bool use_paired_threads(const at::Tensor& w);

// a a^T for a of shape (..., m, n).
at::Tensor gram(const at::Tensor& a);

// The same for one matrix, of which only the lower triangle is defined.
at::Tensor lower_gram(const at::Tensor& a);

// a a^T of one matrix in double precision, without a copy of a in double.
at::Tensor gram_in_double(const at::Tensor& a);

// alpha a b + beta c for symmetric a, b and c of which a and b commute, so that the result is symmetric.
at::Tensor commuting_product(const at::Tensor& a, const at::Tensor& b, double alpha = 1, double beta = 0,
                             const at::Tensor& c = {});

// A copy of the lower triangle of w, in scratch memory; the upper triangle is left undefined.
at::Tensor copy_lower(const at::Tensor& w);

// Copies the lower triangle of the square, row-major matrix w to the upper one.
void mirror_lower_(at::Tensor& w);

// Replaces the lower triangle of w by its Cholesky factor; the upper triangle is left undefined. w is m x m,
// row-major; only its lower triangle is read. Returns log det w, or nothing if w is not positive definite.
std::optional<double> factor_positive_(at::Tensor& w);

// Replaces the Cholesky factor of w by the lower triangle of w^-1. It costs twice as much as the
// factorization.
void invert_factored_(at::Tensor& w);

// Sums over a symmetric matrix.
struct Moments {
  double trace = 0;
  double squares = 0;  // of all entries
};

Moments lower_moments(const at::Tensor& w);

// The sum over k of scales[k] matrices[k], by lower triangles, in the memory of the first. All are row-major.
at::Tensor combine_lower(const std::vector<at::Tensor>& matrices, const std::vector<double>& scales);

}  // namespace tensorion
