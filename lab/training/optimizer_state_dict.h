// The state of an optimizer as named tensors for checkpoints, for example "<parameter>.momentum_buffer".
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <string>

#include "lab/io/safetensors.h"

namespace tensorion::lab {

// Returns the state of a Tensorion optimizer whose parameters belong to the module. The tensors share memory
// with the optimizer.
NamedTensors optimizer_state_dict(torch::optim::Optimizer& optimizer, const torch::nn::Module& module);

// Copies the tensors into the optimizer, which must have the same parameters and algorithms. If a tensor is
// missing, is unexpected or has a different shape, the optimizer is unchanged, and the error contains the
// name of the tensor and `source` (the name of the file).
void load_optimizer_state_dict(torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
                               const NamedTensors& tensors, const std::string& source);

}  // namespace tensorion::lab
