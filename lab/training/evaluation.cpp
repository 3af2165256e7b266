#include "lab/training/evaluation.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

namespace tensorion::lab {

Evaluation evaluate(Classifier& model, const DataLoader& loader) {
  const c10::InferenceMode inference;
  const bool was_training = model.is_training();
  model.eval();
  double loss = 0;
  int64_t correct = 0, samples = 0;
  auto batches = loader.epoch(0);
  while (auto batch = batches.next()) {
    const auto logits = model.forward(batch->images);
    loss += at::cross_entropy_loss(logits, batch->labels, {}, at::Reduction::Sum).item<double>();
    correct += (logits.argmax(1) == batch->labels).sum().item<int64_t>();
    samples += batch->labels.size(0);
  }
  model.train(was_training);
  const auto count = static_cast<double>(samples);
  return {loss / count, static_cast<double>(correct) / count};
}

}  // namespace tensorion::lab
