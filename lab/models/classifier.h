// What every model of the lab is: images in, one logit a class out.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

namespace tensorion::lab {

// The names and shapes of a model's parameters and buffers are those of the
// model of the same name in timm. Weights are drawn from torch's global
// generator, so that at::manual_seed makes them reproducible.
class Classifier : public torch::nn::Module {
 public:
  // (N, channels, height, width), in any memory format, to (N, classes).
  virtual at::Tensor forward(at::Tensor images) = 0;

  // The last linear layer, by its name among the parameters.
  virtual std::string head_name() const = 0;

  // Draws the weights of the last linear layer anew.
  virtual void reset_head() = 0;
};

using Model = std::shared_ptr<Classifier>;

}  // namespace tensorion::lab
