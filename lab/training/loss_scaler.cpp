#include "lab/training/loss_scaler.h"

#include <ATen/ATen.h>

namespace tensorion::lab {
namespace {

constexpr double kInitialScale = 65536;
constexpr double kGrowthFactor = 2;
constexpr double kBackoffFactor = 0.5;
constexpr int64_t kGrowthInterval = 2000;

}  // namespace

LossScaler::LossScaler(c10::Device device)
    : scale_(at::full({}, kInitialScale, at::TensorOptions().dtype(at::kFloat).device(device))),
      growth_(at::zeros({}, at::TensorOptions().dtype(at::kInt).device(device))) {}

at::Tensor LossScaler::scale(const at::Tensor& loss) const { return loss * scale_; }

bool LossScaler::unscale(std::vector<at::Tensor>& gradients) {
  auto found_inf = at::zeros({}, scale_.options());
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, scale_.reciprocal());
  at::_amp_update_scale_(scale_, growth_, found_inf, kGrowthFactor, kBackoffFactor, kGrowthInterval);
  return found_inf.item<float>() == 0;
}

double LossScaler::scale() const { return scale_.item<double>(); }

NamedTensors LossScaler::state() const { return {{"scale", scale_}, {"growth", growth_}}; }

void LossScaler::load_state(const NamedTensors& tensors) {
  const auto scale = tensors.find("scale"), growth = tensors.find("growth");
  TORCH_CHECK_VALUE(scale != tensors.end() && growth != tensors.end() && scale->second.numel() == 1 &&
                        growth->second.numel() == 1,
                    "[tensorion.checkpoint] expected the state of the loss scaler as two scalars, but it is "
                    "missing or has a different shape");
  scale_.copy_(scale->second.reshape({}));
  growth_.copy_(growth->second.reshape({}));
}

}  // namespace tensorion::lab
