// Param groups of a model. They determine which parameters Tensorion updates and which the fallback updates.
//
//   auto groups = tensorion::param_groups(*model, ParamGroupRules().split({{"*.qkv.weight", {3}}}), options);
//   tensorion::Tensorion optimizer(groups, options);
//   std::cout << tensorion::describe(optimizer, *model);
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

#include "tensorion/optimizer.h"

namespace tensorion {

// Returns why the fallback updates a parameter of this shape, or an empty string if Tensorion updates it.
//   "order < 3"     its order (parameter_order) is below options.min_order(), 3 in this example
//   "one mode > 1"  fewer than two modes are larger than 1, as in a layer scale of shape 64 x 1 x 1
// If batch_modes or split_sizes is set, the order does not matter: Tensorion updates every parameter whose
// slices have at least two modes larger than 1. Throws if the shape does not have these modes or sizes.
std::string fallback_reason(at::IntArrayRef shape, const TensorionOptions& options = {});

// Rules that param_groups applies in addition to fallback_reason. Patterns are globs (*, ? and [abc]) that
// are matched against the names of parameters and of the modules that contain them. A pattern that matches
// nothing is an error. If several patterns match a parameter, the first one applies.
struct ParamGroupRules {
  using Pattern = std::pair<std::string, std::vector<int64_t>>;

  TORCH_ARG(std::vector<std::string>, to_fallback);  // patterns of parameters that go to the fallback
  TORCH_ARG(bool, depthwise) = false;                // true: Tensorion updates depthwise kernels
  // false: modes of size 1 do not count in the order, so 1 x 1 kernels go to the fallback, as in earlier
  // versions
  TORCH_ARG(bool, pointwise) = true;
  TORCH_ARG(bool, decay_vectors) = true;   // false: no weight decay for tensors with one mode larger than 1
  TORCH_ARG(std::vector<Pattern>, batch);  // batch_modes of the parameters that match
  TORCH_ARG(std::vector<Pattern>, split);  // split_sizes; {1} keeps the kernel of a grouped convolution whole
};

// Returns the parameters of a module in groups, those of Tensorion first. The kernel of a grouped convolution
// is split by its groups, and depthwise kernels go to the fallback. tensorion.param_groups of the Python
// package makes the same groups. Each group gets a copy of `options`, because libtorch does not merge the
// options of groups with those of the optimizer. Throws if a pattern matches nothing, if batch or split is
// not valid for a parameter, or if a parameter needs a fallback and `options` has none.
std::vector<torch::optim::OptimizerParamGroup> param_groups(const torch::nn::Module& module,
                                                            const ParamGroupRules& rules = {},
                                                            const TensorionOptions& options = {});

// Returns a table of the parameters of an optimizer: which algorithm updates each of them, why, and its
// unfolding, scale and learning rate. If the module is given, the table shows the names of the parameters.
std::string describe(const Tensorion& optimizer);
std::string describe(const Tensorion& optimizer, const torch::nn::Module& module);

}  // namespace tensorion
