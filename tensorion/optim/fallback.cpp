#include "tensorion/fallback.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "tensorion/core/precision.h"
#include "tensorion/core/tensor_groups.h"

namespace tensorion {
namespace {

// A list of tensors for a fused kernel. The fused kernels ignore strides: they require that all tensors of a
// parameter have the same dense memory layout. Tensors with another layout are replaced by copies, and the
// copies are written back afterwards.
class AlignedTensors {
 public:
  // Adds a tensor. `reference` is a dense tensor with the required strides. If `written`, the kernel writes
  // to the tensor.
  void add(const at::Tensor& tensor, const at::Tensor& reference, bool written) {
    if (tensor.is_non_overlapping_and_dense() && tensor.strides() == reference.strides() &&
        tensor.scalar_type() == reference.scalar_type()) {
      tensors_.push_back(tensor);
      return;
    }
    tensors_.push_back(
        at::empty_strided(reference.sizes(), reference.strides(), reference.options()).copy_(tensor));
    if (written) copies_.emplace_back(tensor, tensors_.back());
  }
  at::TensorList list() const { return tensors_; }
  void copy_back() const {
    for (const auto& [original, copy] : copies_) original.copy_(copy);
  }

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
};

// Returns a dense tensor whose strides all tensors of this parameter are given.
at::Tensor dense_reference(const at::Tensor& param) {
  return param.is_non_overlapping_and_dense() ? param : at::empty_like(param, at::MemoryFormat::Contiguous);
}

// Returns the scalar on the device of the parameter.
std::optional<at::Tensor> to_device_of(const at::Tensor& param, const std::optional<at::Tensor>& scalar) {
  return scalar ? std::optional(scalar->to(param.device())) : std::nullopt;
}

}  // namespace

void adamw_step(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,
                at::TensorList exp_avg_sqs, at::TensorList steps, const AdamWStepOptions& options) {
  const NoAutocastGuard no_autocast;
  const c10::NoGradGuard no_grad;
  for (const auto& indices : by_device_and_dtype(params)) {
    AlignedTensors param, grad, exp_avg, exp_avg_sq;
    std::vector<at::Tensor> step;
    for (const size_t i : indices) {
      const auto reference = dense_reference(params[i]);
      param.add(params[i], reference, true);
      grad.add(grads[i], reference, false);
      exp_avg.add(exp_avgs[i], reference, true);
      exp_avg_sq.add(exp_avg_sqs[i], reference, true);
      step.push_back(steps[i]);
    }
    const auto found_inf = to_device_of(params[indices[0]], options.found_inf);
    at::_foreach_add_(step, 1);
    const auto run = [&](const auto& lr) {
      at::_fused_adamw_(param.list(), grad.list(), exp_avg.list(), exp_avg_sq.list(), {}, step, lr,
                        options.beta1, options.beta2, options.weight_decay, options.eps, /*amsgrad=*/false,
                        options.maximize,
                        /*grad_scale=*/std::nullopt, found_inf);
    };
    const auto lr = to_device_of(params[indices[0]], options.lr_tensor);
    lr ? run(*lr) : run(options.lr);
    // A skipped step does not count.
    if (found_inf) at::_foreach_sub_(step, std::vector<at::Tensor>(step.size(), *found_inf));
    for (const auto* list : {&param, &exp_avg, &exp_avg_sq}) list->copy_back();
  }
}

void sgd_step(at::TensorList params, at::TensorList grads, at::TensorList momentum_buffers,
              const SgdStepOptions& options) {
  const NoAutocastGuard no_autocast;
  const c10::NoGradGuard no_grad;
  for (const auto& indices : by_device_and_dtype(params)) {
    AlignedTensors param, grad, buffer;
    for (const size_t i : indices) {
      const auto reference = dense_reference(params[i]);
      param.add(params[i], reference, true);
      grad.add(grads[i], reference, false);
      if (options.momentum != 0) buffer.add(momentum_buffers[i], reference, true);
    }
    const auto found_inf = to_device_of(params[indices[0]], options.found_inf);
    const auto run = [&](const auto& lr) {
      at::_fused_sgd_(param.list(), grad.list(), buffer.list(), options.weight_decay, options.momentum, lr,
                      /*dampening=*/0, /*nesterov=*/false, options.maximize, /*is_first_step=*/false,
                      /*grad_scale=*/std::nullopt, found_inf);
    };
    const auto lr = to_device_of(params[indices[0]], options.lr_tensor);
    lr ? run(*lr) : run(options.lr);
    for (const auto* list : {&param, &buffer}) list->copy_back();
  }
}

}  // namespace tensorion
