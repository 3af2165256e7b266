// Inverses and determinants of symmetric positive definite matrices. Matrices are row-major, and only their
// lower triangle, row >= column, is read and written.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace tensorion {

// Replaces the lower triangle of w by that of its inverse. The upper triangle becomes undefined. Returns
// log det w, or nullopt if w is not numerically positive definite.
std::optional<double> invert_(at::Tensor& w);

// Returns the same as invert_ for a third of the cost. The contents of w become undefined.
std::optional<double> log_det_(at::Tensor& w);

}  // namespace tensorion
