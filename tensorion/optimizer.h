// Tensorion as a torch::optim::Optimizer.
//
//   tensorion::Tensorion optimizer(model->parameters(), TensorionOptions(1e-3).momentum(0.95));
//
// Parameters of order min_order or more (parameter_order in unfolding.h) with at least two modes larger than
// 1 get the update of `step`, all others the fallback, in param groups of their own (the option `algorithm`
// says which), so that any scheduler drives both.
#pragma once

#include <torch/optim/optimizer.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tensorion/step.h"

namespace tensorion {

// Every option, once: its type, name, default and range, then the member of StepOptions that takes it, if one
// does. The setters and getters of TensorionOptions, the checks, the saved format and the arguments of the
// Python package's operators all come from this table; python/tensorion/_options.py is its twin.
#define TENSORION_OPTIONS(OPTION)                                                                     \
  OPTION(double, lr, 1e-3, not_negative, lr)                                                          \
  OPTION(double, momentum, 0.95, below_one, momentum)                                                 \
  OPTION(bool, nesterov, false, anything, nesterov)                                                   \
  OPTION(double, weight_decay, 0.01, not_negative, weight_decay)                                      \
  /* "balanced", "online" or Modes */                                                                 \
  OPTION(UnfoldingStrategy, unfolding, "balanced", anything, unfolding)                               \
  /* "online" decides anew every so many steps */                                                     \
  OPTION(int64_t, online_interval, 1, at_least_one)                                                   \
  /* Slicing checks these two */                                                                      \
  OPTION(Modes, batch_modes, Modes(), anything, slicing.batch_modes)                                  \
  OPTION(std::vector<int64_t>, split_sizes, std::vector<int64_t>(), anything, slicing.split_sizes)    \
  /* PolarOptions checks these three */                                                               \
  OPTION(std::string, polar, "auto", anything, polar.method)                                          \
  OPTION(std::optional<Coefficients>, ns_coefficients, std::nullopt, anything, polar.ns_coefficients) \
  OPTION(std::optional<int64_t>, ns_steps, std::nullopt, anything, polar.ns_steps)                    \
  /* the names that adjusted_scale knows */                                                           \
  OPTION(std::string, adjust_lr_fn, "match_rms_adamw", anything, adjust_lr_fn)                        \
  OPTION(int64_t, min_order, 3, at_least_one)                                                         \
  /* nothing: a parameter that is not Tensorion's is an error */                                      \
  OPTION(std::optional<std::string>, fallback, "adamw", one_of("adamw", "sgd"))                       \
  /* nothing: as lr */                                                                                \
  OPTION(std::optional<double>, fallback_lr, std::nullopt, not_negative)                              \
  /* nothing: as weight_decay */                                                                      \
  OPTION(std::optional<double>, fallback_weight_decay, std::nullopt, not_negative)                    \
  OPTION(Betas, fallback_betas, Betas(0.9, 0.999), below_one)                                         \
  OPTION(double, fallback_eps, 1e-8, not_negative)                                                    \
  OPTION(double, fallback_momentum, 0.9, below_one)                                                   \
  /* what a gradient that is not finite does */                                                       \
  OPTION(std::string, nonfinite, "error", one_of("error", "skip", "ignore"))                          \
  OPTION(bool, maximize, false, anything, maximize)                                                   \
  /* empty in options that the user makes, where the order of each tensor decides */                  \
  OPTION(std::string, algorithm, "", one_of("", "tensorion", "adamw", "sgd"))

struct TensorionOptions : public torch::optim::OptimizerCloneableOptions<TensorionOptions> {
  using Betas = std::tuple<double, double>;

  TensorionOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as torch's options

#define TENSORION_MEMBER(type, name, initial, ...) TORCH_ARG(type, name) = initial;
  TENSORION_OPTIONS(TENSORION_MEMBER)
#undef TENSORION_MEMBER

 public:
  // Throws if an option is out of range.
  void check() const;
  // Throws if a number is not finite or a name is unknown. A step checks no more: schedulers may leave the
  // ranges, if only by rounding.
  void check_step() const;
  StepOptions step_options() const;
  // Whether the choice of "online" is kept for some steps, and so is part of the state.
  bool keeps_unfolding() const;
  // The shape of that state: a number, or one for each slice of the parameter.
  std::vector<int64_t> choice_shape(at::IntArrayRef shape) const;

  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(double lr) override { lr_ = lr; }
};

// What is kept per parameter; undefined if its algorithm does not use it.
struct TensorionParamState : public torch::optim::OptimizerCloneableParamState<TensorionParamState> {
  TORCH_ARG(at::Tensor, momentum_buffer);  // in the parameter's shape, dtype and strides
  TORCH_ARG(at::Tensor, unfolding);        // with online_interval > 1: see UnfoldingChoices
  TORCH_ARG(at::Tensor, step);             // of AdamW, and with online_interval > 1
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

  // Splits the group by order, as the constructor does. Adds all of it, or nothing if it throws.
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
