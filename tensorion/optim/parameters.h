// What an optimizer asks of the tensors it is given.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace tensorion {

// Throws an error that names the tensor if one is not real, floating-point and dense, if elements of one
// share a memory location, or if two tensors without gaps share memory.
void check_parameters(at::TensorList params, at::ArrayRef<std::string> names);

}  // namespace tensorion
