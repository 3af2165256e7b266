#include "lab/training/evaluation.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "lab/training/device.h"

namespace tensorion::lab {

Evaluation evaluate(Classifier& model, const DataLoader& loader, c10::Device device, const std::string& amp,
                    const std::function<void()>& after_batch) {
  const c10::InferenceMode inference;
  const bool was_training = model.is_training();
  model.eval();
  // The sums stay on the device until the end. MPS does not support float64.
  const auto real = device.is_mps() ? at::kFloat : at::kDouble;
  auto loss = at::zeros({}, at::TensorOptions().dtype(real).device(device));
  at::Tensor confusion;
  auto batches = loader.epoch(0);
  while (const auto next = batches.next()) {
    const auto batch = to_device(*next, device);
    at::Tensor logits;
    {
      const Autocast autocast(device, amp);
      logits = model.forward(batch.images);
    }
    logits = logits.to(at::kFloat);
    loss += at::cross_entropy_loss(logits, batch.labels, {}, at::Reduction::Sum).to(real);
    const int64_t classes = logits.size(1);
    const auto pairs = batch.labels * classes + logits.argmax(1);
    const auto counts = pairs.bincount({}, classes * classes).view({classes, classes});
    confusion = confusion.defined() ? confusion + counts : counts;
    after_batch();
  }
  model.train(was_training);
  confusion = confusion.cpu();
  const auto count = confusion.sum().item<double>();
  return {loss.item<double>() / count, confusion.trace().item<double>() / count, confusion};
}

}  // namespace tensorion::lab
