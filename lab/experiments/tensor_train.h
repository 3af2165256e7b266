// Tensor trains: tensors of many modes by small factors, the cores G_k (r_{k-1} x n_k x r_k, r_0 = r_d = 1),
//   x[i_1, ..., i_d] = G_1[:, i_1, :] G_2[:, i_2, :] ... G_d[:, i_d, :].
// Nothing here forms x.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tensorion::lab {

using TensorTrain = std::vector<at::Tensor>;

// d cores of mode size n and ranks min(rank, what n allows from either end), with entries of variance
// 1 / (r_{k-1} n): the expectation of ||x||^2 is 1.
TensorTrain random_train(int64_t d, int64_t n, int64_t rank, uint64_t seed, at::ScalarType dtype);

// ||x|| by an orthogonalization of the cores from left to right: relative error of order eps, whatever
// cancels between the terms of the train. (The square root of the contraction <x, x> loses half the digits
// where they cancel.)
double norm(const TensorTrain& train);

}  // namespace tensorion::lab
