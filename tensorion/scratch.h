// Memory for intermediate results, kept on the CPU from one call to the next: in its steady state a step
// allocates none. As much is kept as was ever needed at once.
#pragma once

#include <ATen/core/Tensor.h>

namespace tensorion {

// As at::empty, for a tensor that is dropped before the call returns to the user.
at::Tensor scratch(at::IntArrayRef sizes, const at::TensorOptions& options);

// Gives back what is kept, unless a step on another thread is using it.
void release_scratch();

}  // namespace tensorion
