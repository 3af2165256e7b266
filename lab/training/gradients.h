// The gradients of a model, taken together.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lab/models/classifier.h"

namespace tensorion::lab {

// Of the parameters that have one.
std::vector<at::Tensor> gradients(const Classifier& model);

// The norm of all of them as one vector; a tensor, which may be on a device.
at::Tensor norm_of(const std::vector<at::Tensor>& gradients);

// Scales them so that their norm, which is `norm`, is at most `limit`: torch.nn.utils.clip_grad_norm_.
void clip(std::vector<at::Tensor>& gradients, const at::Tensor& norm, double limit);

}  // namespace tensorion::lab
