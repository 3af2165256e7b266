// Evaluates a model on a data set.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "lab/data/data_loader.h"
#include "lab/models/classifier.h"

namespace tensorion::lab {

struct Evaluation {
  double loss = 0;      // mean cross-entropy
  double accuracy = 0;  // fraction of images whose class has the largest logit
  // Confusion matrix: the number of images by true class (rows) and predicted class (columns); int64, on the
  // CPU.
  at::Tensor confusion = {};
};

// Evaluates all batches of the loader in evaluation mode and restores the mode of the model afterwards. The
// model must be on the device. `amp` is as in TrainerOptions. Exceptions from `after_batch` are passed on.
Evaluation evaluate(
    Classifier& model, const DataLoader& loader, c10::Device device = at::kCPU,
    const std::string& amp = "off", const std::function<void()>& after_batch = [] {});

}  // namespace tensorion::lab
