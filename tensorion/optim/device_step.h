// Steps of tensors on an accelerator: for lists of tensors at once, in few launches, and without a read from
// the device if directions are found by Newton-Schulz.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensorion/lmo/direction_batch.h"
#include "tensorion/step.h"

namespace tensorion {

// As the functions of step.h of the same names; all tensors are on one device, of one dtype and not empty.
void step_on_device(at::TensorList params, at::TensorList grads, at::TensorList momenta,
                    const StepOptions& options, const UnfoldingChoices& choices);
void add_gradients_on_device(at::TensorList momenta, at::TensorList grads, const StepOptions& options);
std::vector<at::Tensor> directions_on_device(at::TensorList targets, const StepOptions& options,
                                             const UnfoldingChoices& choices);
void apply_directions_on_device(at::TensorList params, at::TensorList directions, const StepOptions& options);

}  // namespace tensorion
