// How well a model does on a data set.
#pragma once

#include "lab/data/data_loader.h"
#include "lab/models/classifier.h"

namespace tensorion::lab {

struct Evaluation {
  double loss = 0;      // the mean cross-entropy
  double accuracy = 0;  // the share of pictures whose class has the largest logit
};

// Over all batches of the loader, in evaluation mode; the model's mode is as before afterwards.
Evaluation evaluate(Classifier& model, const DataLoader& loader);

}  // namespace tensorion::lab
