// Checks of the parameters that an optimizer is given.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace tensorion {

// Throws if a parameter is not a real, floating-point, dense tensor, if elements of a parameter share a
// memory location, or if two contiguous parameters share memory. `names` are the names of the parameters in
// errors.
void check_parameters(at::TensorList params, at::ArrayRef<std::string> names);

}  // namespace tensorion
