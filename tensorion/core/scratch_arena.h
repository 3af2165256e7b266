// An arena for intermediate results on the CPU, so that a step allocates no memory in its steady state. It
// retains its high-water mark until release_scratch() is called.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensorion/scratch.h"

namespace tensorion {

// As at::empty, for a tensor that is dropped before the call returns to the user.
at::Tensor scratch(at::IntArrayRef sizes, const at::TensorOptions& options);

}  // namespace tensorion
