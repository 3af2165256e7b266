// The kernels of the operators that the optimizer calls. The schemas of check_options, step_ and directions_
// are generated from the table of options, so their kernels are boxed: they find their arguments on the stack
// by name.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>

namespace tensorion::ops {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Returns the schema of the options in StepOptions: "float lr, float momentum, ...".
std::string step_arguments();
// The schema of check_options: all options with their defaults, and whether to check their ranges.
c10::FunctionSchema check_options_schema();

void check_options(const c10::OperatorHandle& op, torch::jit::Stack* stack);
void check_parameters(at::TensorList params, const c10::List<std::string>& names);
void step(const c10::OperatorHandle& op, torch::jit::Stack* stack);
void add_gradients(at::TensorList momenta, at::TensorList grads, double momentum, bool maximize);
void directions(const c10::OperatorHandle& op, torch::jit::Stack* stack);
void apply_directions(at::TensorList params, at::TensorList directions, double lr, double weight_decay,
                      const OptionalTensor& lr_tensor);
double solving_cost(at::IntArrayRef shape, const std::string& unfolding);
void adamw_step(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,
                at::TensorList exp_avg_sqs, at::TensorList steps, double lr, double beta1, double beta2,
                double eps, double weight_decay, bool maximize, const OptionalTensor& lr_tensor,
                const OptionalTensor& found_inf);
void sgd_step(at::TensorList params, at::TensorList grads, at::TensorList momentum_buffers, double lr,
              double momentum, double weight_decay, bool maximize, const OptionalTensor& lr_tensor,
              const OptionalTensor& found_inf);
Tensor first_nonfinite_meta(at::TensorList);
Tensor any_nonfinite_meta(at::TensorList tensors);

// The Meta kernel of operators that return nothing.
void no_result_meta(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace tensorion::ops
