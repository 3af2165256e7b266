// Loss scaling for float16, whose smallest numbers gradients fall below: the values of torch.amp.GradScaler.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lab/io/safetensors.h"

namespace tensorion::lab {

// The loss is multiplied by a scale before the backward pass and the gradients are divided by it afterwards.
// The scale is halved if they overflow, in which case the step must be left out, and doubled after 2000 steps
// without that.
class LossScaler {
 public:
  explicit LossScaler(c10::Device device);

  at::Tensor scale(const at::Tensor& loss) const { return loss * scale_; }
  // Divides the gradients by the scale and adapts the scale. Returns whether all gradients are finite.
  bool unscale(std::vector<at::Tensor>& gradients);
  double scale() const;

  NamedTensors state() const;
  void load_state(const NamedTensors& tensors);

 private:
  at::Tensor scale_;
  at::Tensor growth_;  // steps since the scale was changed
};

}  // namespace tensorion::lab
