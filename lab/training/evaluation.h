// How well a model does on a data set.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "lab/data/data_loader.h"
#include "lab/models/classifier.h"

namespace tensorion::lab {

struct Evaluation {
  double loss = 0;      // the mean cross-entropy
  double accuracy = 0;  // the share of pictures whose class has the largest logit
  at::Tensor confusion =
      {};  // int64, classes x classes, on the CPU: pictures by their class and what was said
};

// Over all batches of the loader, in evaluation mode; the model's mode is as before afterwards. The model is
// on the device; `amp` is that of TrainerOptions. What `after_batch` throws ends the evaluation.
Evaluation evaluate(
    Classifier& model, const DataLoader& loader, c10::Device device = at::kCPU,
    const std::string& amp = "off", const std::function<void()>& after_batch = [] {});

}  // namespace tensorion::lab
