// The functions of step.h for tensors on an accelerator. They process lists of tensors with few kernel
// launches, and do not synchronize with the device if the polar method is Newton-Schulz.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensorion/lmo/direction_batch.h"
#include "tensorion/step.h"

namespace tensorion {

// All tensors must be on the same device, have the same dtype and not be empty.
void step_on_device(at::TensorList params, at::TensorList grads, at::TensorList momenta,
                    const StepOptions& options, const UnfoldingChoices& choices);
void add_gradients_on_device(at::TensorList momenta, at::TensorList grads, const StepOptions& options);
std::vector<at::Tensor> directions_on_device(at::TensorList targets, const StepOptions& options,
                                             const UnfoldingChoices& choices);
void apply_directions_on_device(at::TensorList params, at::TensorList directions, const StepOptions& options);

}  // namespace tensorion
