// A memory arena for intermediate results on the CPU. In the steady state, a step allocates no memory. The
// arena retains its high-water mark until release_scratch() is called.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensorion/scratch.h"

namespace tensorion {

// Returns an uninitialized tensor, like at::empty. Its memory returns to the arena when the tensor is
// destroyed. Scratch tensors must not be returned to the user, because they would keep the arena in use.
// Thread-safe.
at::Tensor scratch(at::IntArrayRef sizes, const at::TensorOptions& options);

}  // namespace tensorion
