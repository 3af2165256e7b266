// An exponential moving average of a model's weights (EMA): after each step
//
//   average <- decay * average + (1 - decay) * weights,
//
// from the weights after the first step on, as torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn.
// Running statistics are averaged too; counts are copied.
#pragma once

#include <string>
#include <vector>

#include "lab/io/safetensors.h"
#include "lab/models/classifier.h"

namespace tensorion::lab {

class WeightAverage {
 public:
  // The model must outlive it and keep its tensors.
  WeightAverage(const Classifier& model, double decay);

  // To be called after each step.
  void update();

  // Exchanges the weights of the model and their average.
  void swap();

  // By the names of the model's state dict; empty before the first step.
  NamedTensors tensors() const;
  // All or nothing; an error names what does not fit and `source`.
  void load(const NamedTensors& tensors, const std::string& source);

 private:
  double decay_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> weights_;   // the model's
  std::vector<at::Tensor> averages_;  // empty before the first step
};

}  // namespace tensorion::lab
