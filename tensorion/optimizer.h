// Tensorion as a torch::optim::Optimizer.
//
//   tensorion::Tensorion optimizer(model->parameters(), TensorionOptions(1e-3).momentum(0.95));
//
// Tensorion updates the parameters of order min_order or more (parameter_order in unfolding.h) that have at
// least two modes larger than 1, by `step` (step.h). The fallback, AdamW or SGD, updates all others
// (fallback_reason in param_groups.h decides). Each param group is split accordingly, and the option
// `algorithm` names the optimizer of a group. Learning rate schedulers work on all groups.
#pragma once

#include <torch/optim/optimizer.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tensorion/step.h"

namespace tensorion {

// The table of options. An entry has the type, name, default and valid range of an option, followed by the
// member of StepOptions that it sets, if there is one. The setters and getters of TensorionOptions, the
// checks, the saved format and the arguments of the Python operators are generated from this table. The
// Python counterpart is python/tensorion/_options.py.
#define TENSORION_OPTIONS(OPTION)                                                                      \
  OPTION(double, lr, 1e-3, non_negative, lr)                                                           \
  OPTION(double, momentum, 0.95, in_unit_interval, momentum)                                           \
  OPTION(bool, nesterov, false, any_value, nesterov)                                                   \
  OPTION(double, weight_decay, 0.01, non_negative, weight_decay)                                       \
  /* "balanced", "online" or Modes */                                                                  \
  OPTION(UnfoldingStrategy, unfolding, "balanced", any_value, unfolding)                               \
  /* "online": number of steps between two searches for the unfolding */                               \
  OPTION(int64_t, online_interval, 1, at_least_one)                                                    \
  /* checked by Slicing */                                                                             \
  OPTION(Modes, batch_modes, Modes(), any_value, slicing.batch_modes)                                  \
  OPTION(std::vector<int64_t>, split_sizes, std::vector<int64_t>(), any_value, slicing.split_sizes)    \
  /* checked by PolarOptions */                                                                        \
  OPTION(std::string, polar, "auto", any_value, polar.method)                                          \
  OPTION(std::optional<Coefficients>, ns_coefficients, std::nullopt, any_value, polar.ns_coefficients) \
  OPTION(std::optional<int64_t>, ns_steps, std::nullopt, any_value, polar.ns_steps)                    \
  /* see adjusted_scale */                                                                             \
  OPTION(std::string, adjust_lr_fn, "match_rms_adamw", any_value, adjust_lr_fn)                        \
  OPTION(int64_t, min_order, 3, at_least_one)                                                          \
  /* nullopt: a parameter that Tensorion does not update is an error */                                \
  OPTION(std::optional<std::string>, fallback, "adamw", one_of("adamw", "sgd"))                        \
  /* nullopt: same as lr */                                                                            \
  OPTION(std::optional<double>, fallback_lr, std::nullopt, non_negative)                               \
  /* nullopt: same as weight_decay */                                                                  \
  OPTION(std::optional<double>, fallback_weight_decay, std::nullopt, non_negative)                     \
  OPTION(Betas, fallback_betas, Betas(0.9, 0.999), in_unit_interval)                                   \
  OPTION(double, fallback_eps, 1e-8, non_negative)                                                     \
  OPTION(double, fallback_momentum, 0.9, in_unit_interval)                                             \
  /* what happens if a gradient is not finite */                                                       \
  OPTION(std::string, nonfinite, "error", one_of("error", "skip", "ignore"))                           \
  OPTION(bool, maximize, false, any_value, maximize)                                                   \
  /* empty: each parameter of the group is assigned by fallback_reason */                              \
  OPTION(std::string, algorithm, "", one_of("", "tensorion", "adamw", "sgd"))

struct TensorionOptions : public torch::optim::OptimizerCloneableOptions<TensorionOptions> {
  using Betas = std::tuple<double, double>;

  TensorionOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as torch's options

#define TENSORION_MEMBER(type, name, initial, ...) TORCH_ARG(type, name) = initial;
  TENSORION_OPTIONS(TENSORION_MEMBER)
#undef TENSORION_MEMBER

 public:
  // Throws if an option is out of range. The optimizer calls this when a group is added.
  void check() const;
  // Throws if a number is not finite or a name is unknown. The optimizer calls this in every step. Ranges are
  // not checked then, because a scheduler may leave them by a rounding error.
  void check_step() const;
  // Returns the options of `step`.
  StepOptions step_options() const;
  // Returns true if the unfolding that "online" chose is kept between steps and is thus part of the state.
  bool keeps_unfolding() const;
  // Returns the shape of the stored choice for a parameter of this shape: 0-dim, or one element per slice.
  std::vector<int64_t> choice_shape(at::IntArrayRef shape) const;

  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(double lr) override { lr_ = lr; }
};

// The state of a parameter. Tensors that its algorithm does not use are undefined.
struct TensorionParamState : public torch::optim::OptimizerCloneableParamState<TensorionParamState> {
  TORCH_ARG(at::Tensor, momentum_buffer);  // in the parameter's shape, dtype and strides
  TORCH_ARG(at::Tensor, unfolding);        // "online" with online_interval > 1: see UnfoldingChoices
  TORCH_ARG(at::Tensor, step);             // number of steps: AdamW, and "online" with online_interval > 1
  TORCH_ARG(at::Tensor, exp_avg);          // AdamW
  TORCH_ARG(at::Tensor, exp_avg_sq);       // AdamW

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

// Returns a param group with its own options. libtorch merges the options of a group with the defaults only
// for the optimizers that it ships, so start from a copy of the defaults:
//   param_group(biases, TensorionOptions(defaults).weight_decay(0))
torch::optim::OptimizerParamGroup param_group(std::vector<at::Tensor> params, TensorionOptions options);

class Tensorion : public torch::optim::Optimizer {
 public:
  // Groups without options take `defaults`. Throws if there is no parameter, or if an option or a parameter
  // is not valid.
  explicit Tensorion(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                     const TensorionOptions& defaults = {});
  explicit Tensorion(std::vector<at::Tensor> params, const TensorionOptions& defaults = {})
      : Tensorion({torch::optim::OptimizerParamGroup(std::move(params))}, defaults) {}

  // Adds a group, split into a Tensorion group and a fallback group as in the constructor. If it throws,
  // nothing is added.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  // Performs one step and returns the value of the closure, if one is given. Parameters without a gradient
  // are not changed. If it throws because of an option or a gradient, nothing has been changed.
  at::Tensor step(LossClosure closure = nullptr) override;

  // Returns the number of steps that were skipped because of nonfinite = "skip".
  int64_t skipped_steps() const;

  void save(torch::serialize::OutputArchive& archive) const override;
  // Loads options and state. The state is converted to the dtype and device of its parameter. Throws if the
  // groups, algorithms or shapes differ from those of this optimizer; then nothing is loaded.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  size_t added_groups_ = 0;  // number of groups before splitting, for error messages
  at::Tensor skipped_;       // number of skipped steps, on the device of the gradients
};

}  // namespace tensorion
