// Passes over tensors of one shape whose memory is laid out differently, such as a kernel and its unfolding.
#pragma once

#include <ATen/core/Tensor.h>

namespace tensorion {

// out <- x.
void copy_strided(const at::Tensor& x, const at::Tensor& out);

// y <- decay y + alpha x. Returns true if y is known to be finite now; false says nothing.
bool axpby_(double decay, const at::Tensor& y, double alpha, const at::Tensor& x);

// The sum of all a b, in double precision.
double inner_product(const at::Tensor& a, const at::Tensor& b);

}  // namespace tensorion
