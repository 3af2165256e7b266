// Matrix products by the fastest library that torch contains.
//
// at::mm calls MKL, which has no AVX-512 code for CPUs that are not made by Intel. oneDNN, which torch uses
// for convolutions, has. On CPUs of AMD that execute 512-bit instructions at full width (since Zen 5), its
// products are 2.2 times as fast. Zen 4 executes them in two halves and gains little.
#pragma once

#include <ATen/core/Tensor.h>

namespace tensorion {

// Returns true if gemm_out uses oneDNN for large matrices of the dtype and device of x. oneDNN copies a
// matrix unless its rows, or its columns, are contiguous and adjacent in memory.
bool uses_onednn(const at::Tensor& x);

// Computes out <- alpha a b + beta out for matrices, like at::addmm_out.
void gemm_out(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, double alpha = 1,
              double beta = 0);

// Returns a b in scratch memory, in the memory layout of b.
at::Tensor gemm(const at::Tensor& a, const at::Tensor& b);

// Returns true if onednn_gemm_out can compute this product: matrices in fp32 on the CPU, large enough, and a
// torch with oneDNN.
bool supports_onednn(const at::Tensor& out, const at::Tensor& a);
// The same as gemm_out, always by oneDNN.
void onednn_gemm_out(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, double alpha,
                     double beta);

}  // namespace tensorion
