// The state of an optimizer as named tensors, "<parameter>.momentum_buffer" for example: what a checkpoint
// holds.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <string>

#include "lab/io/safetensors.h"

namespace tensorion::lab {

// Of the library's optimizer, whose parameters are the module's. The tensors share its memory.
NamedTensors optimizer_state_dict(torch::optim::Optimizer& optimizer, const torch::nn::Module& module);

// Copies the tensors into the optimizer, which must have the same parameters and algorithms. What is
// missing, unexpected or of another shape is an error that names it and `source` (a file), and the optimizer
// stays as it was.
void load_optimizer_state_dict(torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
                               const NamedTensors& tensors, const std::string& source);

}  // namespace tensorion::lab
