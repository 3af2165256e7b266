// The optimizers for tensors of low order: torch's own fused kernels, for any strides.
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
  std::optional<at::Tensor> lr_tensor;  // as in StepOptions
  std::optional<at::Tensor> found_inf;
};

struct SgdStepOptions {
  double lr = 1e-3;
  double momentum = 0.9;
  double weight_decay = 0.01;
  bool maximize = false;
  std::optional<at::Tensor> lr_tensor;
  std::optional<at::Tensor> found_inf;
};

// As torch.optim.AdamW(fused=True): `steps` are 0-dim float tensors, counted up here.
void adamw_step(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,
                at::TensorList exp_avg_sqs, at::TensorList steps, const AdamWStepOptions& options);

// As torch.optim.SGD(fused=True); the buffers start from zero.
void sgd_step(at::TensorList params, at::TensorList grads, at::TensorList momentum_buffers,
              const SgdStepOptions& options);

}  // namespace tensorion
