// Loss scaling for float16, with the defaults of torch.amp.GradScaler. Without it, small gradients underflow.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lab/io/safetensors.h"

namespace tensorion::lab {

// Multiplies the loss by a scale before the backward pass and divides the gradients by it afterwards. If the
// gradients overflow, the scale is halved and the caller must skip the step. After 2000 steps without an
// overflow, the scale is doubled.
class LossScaler {
 public:
  explicit LossScaler(c10::Device device);

  at::Tensor scale(const at::Tensor& loss) const;
  // Divides the gradients by the scale and updates the scale. Returns true if all gradients are finite.
  bool unscale(std::vector<at::Tensor>& gradients);
  double scale() const;

  NamedTensors state() const;
  void load_state(const NamedTensors& tensors);

 private:
  at::Tensor scale_;
  at::Tensor growth_;  // number of steps since the scale was changed
};

}  // namespace tensorion::lab
