// The Laplacian on the unit cube in d dimensions with Dirichlet boundary conditions, n inner points per
// dimension, and h = 1/(n+1):
//   A = sum_k I (x) ... (x) L (x) ... (x) I,   L = tridiag(-1, 2, -1) / h^2 = D^T D.
// D is the (n+1) x n matrix of differences divided by h. As an operator on tensor trains, A has rank 2:
//   left state (E, F):  E' = sum_i G_i^T E G_i,   F' = sum_i G_i^T F G_i + sum_i (DG)_i^T E (DG)_i.
// One sweep over the cores therefore computes both <x, x> and <x, Ax> in O(d n r^3) operations.
#pragma once

#include "lab/experiments/tensor_train.h"

namespace tensorion::lab {

// Returns d (4 / h^2) sin^2(pi h / 2). Its eigenvector is a product of sines.
double smallest_eigenvalue(int64_t d, int64_t n);

// Returns <x, Ax> / <x, x> as a 0-dim tensor that supports autograd. The states are rescaled during the
// sweep, so the norm of the train may be arbitrarily large or small. The energies are sums of squared
// differences, which avoids the cancellation in 2 x_i - x_{i-1} - x_{i+1}. The relative error is O(d eps).
at::Tensor rayleigh_quotient(const TensorTrain& train);

// Returns ||A x - value x|| / ||x||. The numerator is the norm(...) of the train (A - value) x, which has
// ranks 2 r, and is computed without squaring. For the exact eigenvector the result is the rounding error of
// A itself, about eps 4 / h^2.
double residual(const TensorTrain& train, double value);

}  // namespace tensorion::lab
