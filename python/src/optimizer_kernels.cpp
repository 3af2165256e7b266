#include "python/src/optimizer_kernels.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>
#include <torch/library.h>

#include <vector>

#include "tensorion/fallback.h"
#include "tensorion/optim/option_table.h"
#include "tensorion/optim/parameter_checks.h"
#include "tensorion/optimizer.h"
#include "tensorion/step.h"

namespace tensorion::ops {
namespace {

using c10::IValue;

// The arguments of a call by name, for boxed kernels whose schema is generated from the table of options.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, const torch::jit::Stack& stack)
      : schema_(op.schema()), values_(torch::jit::last(stack, schema_.arguments().size())) {}

  size_t size() const { return values_.size(); }

  // Returns None if the operator has no such argument.
  IValue operator[](const std::string& name) const {
    const auto index = schema_.argumentIndexWithName(name);
    return index ? values_[*index] : IValue();
  }

  tensorion::TensorionOptions options() const {
    tensorion::TensorionOptions options;
    for (const auto& option : tensorion::option_table()) {
      if (const auto index = schema_.argumentIndexWithName(option.name)) option.set(options, values_[*index]);
    }
    return options;
  }

  tensorion::StepOptions step_options() const {
    auto step = options().step_options();
    step.lr_tensor = (*this)["lr_tensor"].toOptional<Tensor>();
    step.found_inf = (*this)["found_inf"].toOptional<Tensor>();
    return step;
  }

 private:
  const c10::FunctionSchema& schema_;
  at::ArrayRef<IValue> values_;
};

}  // namespace

std::string step_arguments() {
  std::vector<std::string> arguments;
  for (const auto& option : tensorion::option_table()) {
    if (option.is_step) arguments.push_back(c10::str(option.type->str(), " ", option.name));
  }
  return c10::Join(", ", arguments);
}

c10::FunctionSchema check_options_schema() {
  const tensorion::TensorionOptions defaults;
  std::vector<c10::Argument> arguments;
  const auto add = [&](const char* name, const c10::TypePtr& type, const std::optional<IValue>& initial) {
    arguments.emplace_back(name, type, /*N=*/std::nullopt, initial, /*kwarg_only=*/true);
  };
  for (const auto& option : tensorion::option_table()) add(option.name, option.type, option.get(defaults));
  add("ranges", c10::BoolType::get(), std::nullopt);
  return {"tensorion::check_options", "", std::move(arguments), {}};
}

void check_options(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Arguments given(op, *stack);
  const auto options = given.options();
  given["ranges"].toBool() ? options.check() : options.check_step();
  torch::jit::drop(*stack, given.size());
}

void check_parameters(at::TensorList params, const c10::List<std::string>& names) {
  tensorion::check_parameters(params, names.vec());
}

void step(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Arguments given(op, *stack);
  const auto choices = given["choices"].toTensorVector();
  tensorion::step(given["params"].toTensorVector(), given["grads"].toTensorVector(),
                  given["momenta"].toTensorVector(), given.step_options(),
                  {choices, given["decide"].toBool()});
  torch::jit::drop(*stack, given.size());
}

void add_gradients(at::TensorList momenta, at::TensorList grads, double momentum, bool maximize) {
  tensorion::StepOptions options;
  options.momentum = momentum;
  options.maximize = maximize;
  tensorion::add_gradients(momenta, grads, options);
}

void directions(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Arguments given(op, *stack);
  tensorion::directions_out(given["results"].toTensorVector(), given["targets"].toTensorVector(),
                            given.step_options());
  torch::jit::drop(*stack, given.size());
}

void apply_directions(at::TensorList params, at::TensorList directions, double lr, double weight_decay,
                      const OptionalTensor& lr_tensor) {
  tensorion::StepOptions options;
  options.lr = lr;
  options.weight_decay = weight_decay;
  options.lr_tensor = lr_tensor;
  tensorion::apply_directions(params, directions, options);
}

double solving_cost(at::IntArrayRef shape, const std::string& unfolding) {
  return tensorion::solving_cost(shape, UnfoldingStrategy::parse(unfolding));
}

void adamw_step(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,
                at::TensorList exp_avg_sqs, at::TensorList steps, double lr, double beta1, double beta2,
                double eps, double weight_decay, bool maximize, const OptionalTensor& lr_tensor,
                const OptionalTensor& found_inf) {
  tensorion::adamw_step(params, grads, exp_avgs, exp_avg_sqs, steps,
                        {lr, beta1, beta2, eps, weight_decay, maximize, lr_tensor, found_inf});
}

void sgd_step(at::TensorList params, at::TensorList grads, at::TensorList momentum_buffers, double lr,
              double momentum, double weight_decay, bool maximize, const OptionalTensor& lr_tensor,
              const OptionalTensor& found_inf) {
  tensorion::sgd_step(params, grads, momentum_buffers,
                      {lr, momentum, weight_decay, maximize, lr_tensor, found_inf});
}

Tensor first_nonfinite_meta(at::TensorList) {
  return at::empty({}, at::TensorOptions(at::kLong).device(at::kMeta));
}

Tensor any_nonfinite_meta(at::TensorList tensors) {
  return at::empty({}, at::TensorOptions(at::kFloat).device(at::kMeta));
}

void no_result_meta(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size());
}

}  // namespace tensorion::ops
