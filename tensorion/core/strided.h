// Elementwise operations and inner products of two tensors with equal shapes and different strides, such as a
// tensor and the buffer of its unfolding. ATen is slow if the innermost dimension is short.
#pragma once

#include <ATen/core/Tensor.h>

namespace tensorion {

// Computes out <- x.
void copy_strided(const at::Tensor& x, const at::Tensor& out);

// Computes y <- decay y + alpha x. Returns true only if all elements of the result are finite. False means
// that some element is not finite, or that the tensors were handled by ATen and not checked.
bool axpby_(double decay, const at::Tensor& y, double alpha, const at::Tensor& x);

// Returns <a, b>, accumulated in double precision.
double inner_product(const at::Tensor& a, const at::Tensor& b);

}  // namespace tensorion
