// Gradient clipping by the norm over all parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lab/models/classifier.h"

namespace tensorion::lab {

// Returns the gradients of all parameters that have one.
std::vector<at::Tensor> gradients(const Classifier& model);

// Returns the norm of all gradients as one vector, as torch.nn.utils.get_total_norm. The result is a scalar
// tensor on the device of the gradients.
at::Tensor get_total_norm(const std::vector<at::Tensor>& gradients);

// Scales gradients whose total norm is `norm` so that it becomes at most `limit`, as
// torch.nn.utils.clip_grads_with_norm_.
void clip_grads_with_norm_(std::vector<at::Tensor>& gradients, const at::Tensor& norm, double limit);

}  // namespace tensorion::lab
