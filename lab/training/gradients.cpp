#include "lab/training/gradients.h"

#include <ATen/ATen.h>

namespace tensorion::lab {

std::vector<at::Tensor> gradients(const Classifier& model) {
  std::vector<at::Tensor> out;
  for (const auto& parameter : model.parameters()) {
    if (parameter.grad().defined()) out.push_back(parameter.grad());
  }
  return out;
}

at::Tensor get_total_norm(const std::vector<at::Tensor>& gradients) {
  return at::stack(at::_foreach_norm(gradients)).norm();
}

void clip_grads_with_norm_(std::vector<at::Tensor>& gradients, const at::Tensor& norm, double limit) {
  at::_foreach_mul_(gradients, (limit / (norm + 1e-6)).clamp_max(1.0));
}

}  // namespace tensorion::lab
