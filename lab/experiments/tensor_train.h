// A tensor train represents a tensor with many modes by small cores G_k of shape r_{k-1} x n_k x r_k, with
// r_0 = r_d = 1:
//   x[i_1, ..., i_d] = G_1[:, i_1, :] G_2[:, i_2, :] ... G_d[:, i_d, :].
// No function here forms x.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tensorion::lab {

using TensorTrain = std::vector<at::Tensor>;

// Returns d cores with mode size n. The ranks are the minimum of `rank` and the largest rank that n allows
// from either end. The entries have variance 1 / (r_{k-1} n), so the expectation of ||x||^2 is 1.
TensorTrain random_train(int64_t d, int64_t n, int64_t rank, uint64_t seed, at::ScalarType dtype);

// Computes ||x|| by orthogonalizing the cores from left to right. The relative error is of order eps even if
// the terms of the train cancel. (The square root of the contraction <x, x> would lose half of the digits in
// that case.)
double norm(const TensorTrain& train);

}  // namespace tensorion::lab
