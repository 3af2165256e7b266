// The Laplacian on the unit cube in d dimensions with Dirichlet boundary, n inner points a side, h = 1/(n+1):
//   A = sum_k I (x) ... (x) L (x) ... (x) I,   L = tridiag(-1, 2, -1) / h^2 = D^T D,
// D the (n+1) x n matrix of differences over h. As an operator on tensor trains A has rank 2:
//   left state (E, F):  E' = sum_i G_i^T E G_i,   F' = sum_i G_i^T F G_i + sum_i (DG)_i^T E (DG)_i,
// so that <x, x> and <x, Ax> are one sweep over the cores, of d n r^3 operations.
#pragma once

#include "lab/experiments/tensor_train.h"

namespace tensorion::lab {

// d (4 / h^2) sin^2(pi h / 2), of the eigenvector that is a product of sines.
double smallest_eigenvalue(int64_t d, int64_t n);

// <x, Ax> / <x, x> as a 0-dim tensor, with autograd. The states are rescaled on the way, so trains of any
// size are fine; energies come from squares of differences, not from the cancelling sum 2 x_i - x_{i-1} -
// x_{i+1}: a relative error of order d eps.
at::Tensor rayleigh_quotient(const TensorTrain& train);

// ||A x - value x|| / ||x||, of the train (A - value) x with ranks 2 r, without squares: norm(...). What is
// left of the exact eigenvector is the rounding of A itself, about eps 4 / h^2.
double residual(const TensorTrain& train, double value);

}  // namespace tensorion::lab
