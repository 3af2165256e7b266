// The fallback optimizers, AdamW and SGD, for parameters that Tensorion does not update. `fallback_reason`
// (param_groups.h) decides which parameters these are. Both functions call torch's fused kernels and accept
// tensors with any strides.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace tensorion {

struct AdamWStepOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  bool maximize = false;
  std::optional<at::Tensor> lr_tensor;  // see StepOptions
  std::optional<at::Tensor> found_inf;  // see StepOptions
};

struct SgdStepOptions {
  double lr = 1e-3;
  double momentum = 0.9;
  double weight_decay = 0.01;
  bool maximize = false;
  std::optional<at::Tensor> lr_tensor;  // see StepOptions
  std::optional<at::Tensor> found_inf;  // see StepOptions
};

// Performs one step of torch.optim.AdamW(fused=True) in place. `steps` holds a 0-dim float tensor for each
// parameter, which counts its steps and is incremented here.
void adamw_step(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,
                at::TensorList exp_avg_sqs, at::TensorList steps, const AdamWStepOptions& options);

// Performs one step of torch.optim.SGD(fused=True) in place. Momentum buffers are zero before the first step.
void sgd_step(at::TensorList params, at::TensorList grads, at::TensorList momentum_buffers,
              const SgdStepOptions& options);

}  // namespace tensorion
