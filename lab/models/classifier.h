// The interface of all models: images in, one logit per class out.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

namespace tensorion::lab {

// The names and shapes of the parameters and buffers equal those of the timm model of the same name. Weights
// are initialized from torch's global generator, so at::manual_seed makes them reproducible.
class Classifier : public torch::nn::Module {
 public:
  // Maps (N, channels, height, width), in any memory format, to (N, classes).
  virtual at::Tensor forward(at::Tensor images) = 0;

  // The name of the last linear layer (the classification head) in the state dict.
  virtual std::string head_name() const = 0;

  // Reinitializes the last linear layer.
  virtual void reset_head() = 0;
};

using Model = std::shared_ptr<Classifier>;

}  // namespace tensorion::lab
