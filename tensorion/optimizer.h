// Tensorion as a torch::optim::Optimizer.
//
//   auto optimizer = tensorion::Tensorion(model->parameters(),
//   tensorion::TensorionOptions(1e-3).momentum(0.95));
//
// Tensors of effective order >= min_order get the update of `step`, all others the fallback, in param groups
// of their own (the option `algorithm` says which), so that any scheduler drives both.
#pragma once

#include <torch/optim/optimizer.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tensorion/step.h"

namespace tensorion {

struct TensorionOptions : public torch::optim::OptimizerCloneableOptions<TensorionOptions> {
  using Betas = std::tuple<double, double>;

  TensorionOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as torch's options
  TORCH_ARG(double, lr);
  TORCH_ARG(double, momentum) = 0.95;
  TORCH_ARG(bool, nesterov) = false;
  TORCH_ARG(double, weight_decay) = 0.01;
  TORCH_ARG(UnfoldingStrategy, unfolding) = "balanced";
  TORCH_ARG(std::string, polar) = "auto";
  TORCH_ARG(Coefficients, ns_coefficients) = named_coefficients("muon");
  TORCH_ARG(int64_t, ns_steps) = 5;
  TORCH_ARG(std::string, adjust_lr_fn) = "match_rms_adamw";
  TORCH_ARG(int64_t, min_order) = 3;
  TORCH_ARG(std::optional<std::string>,
            fallback) = "adamw";                  // "sgd"; nothing: a tensor of low order is an error
  TORCH_ARG(std::optional<double>, fallback_lr);  // nothing: as lr
  TORCH_ARG(std::optional<double>, fallback_weight_decay);  // nothing: as weight_decay
  TORCH_ARG(Betas, fallback_betas) = Betas(0.9, 0.999);
  TORCH_ARG(double, fallback_eps) = 1e-8;
  TORCH_ARG(double, fallback_momentum) = 0.9;
  TORCH_ARG(std::string, nonfinite) = "error";  // "skip", "ignore"
  TORCH_ARG(bool, maximize) = false;
  // "tensorion", "adamw" or "sgd". Empty in options that the user makes, where the order of each tensor
  // decides.
  TORCH_ARG(std::string, algorithm);

 public:
  // Throws if an option is out of range.
  void check() const;
  // Throws if a number is not finite or a name is unknown. A step checks no more: schedulers may leave the
  // ranges, if only by rounding.
  void check_step() const;
  StepOptions step_options() const;

  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(double lr) override { lr_ = lr; }
};

// What is kept per parameter; undefined where its algorithm has no use for it.
struct TensorionParamState : public torch::optim::OptimizerCloneableParamState<TensorionParamState> {
  TORCH_ARG(at::Tensor, momentum_buffer);  // in the parameter's shape, dtype and strides
  TORCH_ARG(at::Tensor, step);
  TORCH_ARG(at::Tensor, exp_avg);
  TORCH_ARG(at::Tensor, exp_avg_sq);

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

// A group with options of its own. libtorch merges a group's options with the defaults only for its own
// optimizers, so start from a copy of them: param_group(biases, TensorionOptions(defaults).weight_decay(0)).
torch::optim::OptimizerParamGroup param_group(std::vector<at::Tensor> params, TensorionOptions options);

class Tensorion : public torch::optim::Optimizer {
 public:
  explicit Tensorion(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                     const TensorionOptions& defaults = {});
  explicit Tensorion(std::vector<at::Tensor> params, const TensorionOptions& defaults = {})
      : Tensorion({torch::optim::OptimizerParamGroup(std::move(params))}, defaults) {}

  // Splits the group by effective order, as the constructor does. Adds all of it, or nothing if it throws.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  at::Tensor step(LossClosure closure = nullptr) override;

  // How many steps nonfinite = "skip" has left out.
  int64_t skipped_steps() const;

  void save(torch::serialize::OutputArchive& archive) const override;
  // All or nothing: a state that does not fit is an error that names the parameter. State takes on the dtype
  // and the device of its parameter.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  size_t groups_given_ = 0;  // before they were split: what errors count by
  at::Tensor skipped_;       // counted on the device
};

}  // namespace tensorion
