#include "lab/training/weight_average.h"

#include <ATen/ATen.h>

#include "lab/models/state_dict.h"

namespace tensorion::lab {

WeightAverage::WeightAverage(const Classifier& model, double decay) : decay_(decay) {
  TORCH_CHECK_VALUE(decay > 0 && decay < 1, "[tensorion.train] ema must be a decay in (0, 1), got ", decay);
  for (const auto& [name, tensor] : state_dict(model)) {
    names_.push_back(name);
    weights_.push_back(tensor);
  }
}

void WeightAverage::update() {
  if (averages_.empty()) {
    for (const auto& weight : weights_) averages_.push_back(weight.clone());
    return;
  }
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i].is_floating_point()) {
      averages_[i].lerp_(weights_[i], 1 - decay_);
    } else {
      averages_[i].copy_(weights_[i]);
    }
  }
}

void WeightAverage::swap() {
  for (size_t i = 0; i < averages_.size(); ++i) {
    const auto weight = weights_[i].clone();
    weights_[i].copy_(averages_[i]);
    averages_[i].copy_(weight);
  }
}

NamedTensors WeightAverage::tensors() const {
  NamedTensors out;
  for (size_t i = 0; i < averages_.size(); ++i) out[names_[i]] = averages_[i];
  return out;
}

void WeightAverage::load(const NamedTensors& tensors, const std::string& source) {
  std::vector<at::Tensor> loaded;
  for (size_t i = 0; i < names_.size() && !tensors.empty(); ++i) {
    const auto stored = tensors.find(names_[i]);
    const bool fits = stored != tensors.end() && stored->second.sizes() == weights_[i].sizes() &&
                      stored->second.dtype() == weights_[i].dtype();
    TORCH_CHECK_VALUE(fits, "[tensorion.checkpoint] ", source, ": the average of ", names_[i],
                      " is missing or has a different shape or dtype");
    loaded.push_back(at::empty_like(weights_[i]).copy_(stored->second));
  }
  averages_ = std::move(loaded);
}

}  // namespace tensorion::lab
