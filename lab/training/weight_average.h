// An exponential moving average (EMA) of the weights of a model. After each step
//
//   average <- decay * average + (1 - decay) * weights.
//
// The average starts with the weights after the first step, as torch.optim.swa_utils.AveragedModel with
// get_ema_multi_avg_fn does. Floating-point buffers are averaged, too; integer buffers are copied.
#pragma once

#include <string>
#include <vector>

#include "lab/io/safetensors.h"
#include "lab/models/classifier.h"

namespace tensorion::lab {

class WeightAverage {
 public:
  // The model must outlive this object, and its tensors must not be replaced.
  WeightAverage(const Classifier& model, double decay);

  // Call this after each step.
  void update();

  // Swaps the weights of the model and the average.
  void swap();

  // The average with the names of the model's state dict; empty before the first step.
  NamedTensors tensors() const;
  // Loads the average, or throws and changes nothing. The error contains the name of the tensor and `source`.
  void load(const NamedTensors& tensors, const std::string& source);

 private:
  double decay_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> weights_;   // the model's
  std::vector<at::Tensor> averages_;  // empty before the first step
};

}  // namespace tensorion::lab
