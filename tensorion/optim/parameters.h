// What an optimizer asks of the tensors it is given.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace tensorion {

// Throws, by the names, where a tensor is not real, floating-point and dense, where elements of one share a
// memory location, or where two tensors without gaps share memory.
void check_parameters(at::TensorList params, at::ArrayRef<std::string> names);

}  // namespace tensorion
