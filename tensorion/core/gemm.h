// Matrix products by the fastest library that torch contains.
//
// at::mm calls MKL, which has no AVX-512 code for CPUs that are not made by Intel. oneDNN, which torch uses
// for convolutions, has. On an AMD EPYC with AVX-512 its products are 2.2 times as fast.
#pragma once

#include <ATen/core/Tensor.h>

namespace tensorion {

// Returns true if gemm_out uses oneDNN for large matrices of the dtype and device of x. oneDNN copies a
// matrix unless its rows, or its columns, are contiguous and adjacent in memory.
bool uses_onednn(const at::Tensor& x);

// Computes out <- alpha a b + beta out for matrices, like at::addmm_out.
void gemm_out(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, double alpha = 1,
              double beta = 0);

}  // namespace tensorion
