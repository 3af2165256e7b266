// Products, sums and moments of symmetric matrices. They compute only the lower triangle, row >= column,
// which takes about half the time. Matrices are row-major. Results may be in scratch memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace tensorion {

// Returns true if running two factorizations on one thread each is faster than running them in sequence on
// all threads. This is the case for two or three threads, because LAPACK gains little from so few threads.
bool use_paired_threads(const at::Tensor& w);

// Returns the number of threads for products by panels. With one panel per thread, threads do not have to
// wait for each other in every product. If this is 1, each product uses all threads.
int64_t panel_threads(const at::Tensor& w);

// Returns a a^T for a of shape (..., m, n).
at::Tensor gram(const at::Tensor& a);

// Returns a a^T of one matrix. Only the lower triangle of the result is defined.
at::Tensor lower_gram(const at::Tensor& a);

// Returns a a^T of one matrix in double precision, without a copy of the whole of a in double precision.
at::Tensor gram_in_double(const at::Tensor& a);

// Returns alpha a b + beta c for symmetric a, b and c. a and b must commute, so that the result is symmetric.
at::Tensor commuting_product(const at::Tensor& a, const at::Tensor& b, double alpha = 1, double beta = 0,
                             const at::Tensor& c = {});

// Computes w <- w - a b^T - b a^T for the lower triangle of w.
void subtract_products_(const at::Tensor& w, const at::Tensor& a, const at::Tensor& b);

// Returns a copy of the lower triangle of w. The upper triangle of the copy is undefined.
at::Tensor copy_lower(const at::Tensor& w);

// Computes w <- w + value I.
void add_to_diagonal_(const at::Tensor& w, double value);

// Copies the lower triangle of w to its upper triangle.
void mirror_lower_(at::Tensor& w);

// Moments of a symmetric matrix.
struct Moments {
  double trace = 0;
  double squares = 0;  // squared Frobenius norm
};

// Reads only the lower triangle.
Moments lower_moments(const at::Tensor& w);

// Returns the sum over k of scales[k] matrices[k]. It reads and writes only lower triangles, and overwrites
// matrices[0] with the result.
at::Tensor combine_lower(const std::vector<at::Tensor>& matrices, const std::vector<double>& scales);

}  // namespace tensorion
