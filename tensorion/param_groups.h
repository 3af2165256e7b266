// Which parameters Tensorion updates and which the fallback: groups of a model's parameters by readable
// rules, and a table of what became of them.
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

// Why the fallback updates parameters of this shape: "order < 3" if their order (parameter_order) is below
// options.min_order(), "one mode > 1" if fewer than two modes are larger than 1, as in a layer scale of
// 64 x 1 x 1. Empty if Tensorion updates them. With batch_modes or split_sizes, Tensorion updates parameters
// of any order whose slices have at least two modes larger than 1. Throws if these options do not fit the
// shape.
std::string fallback_reason(at::IntArrayRef shape, const TensorionOptions& options = {});

// What param_groups does beyond the split by order. Patterns are globs (*, ? and [abc]) of the names of
// parameters or of modules that hold them; one that fits nothing is an error, and of several that fit the
// first one counts.
struct ParamGroupRules {
  using Pattern = std::pair<std::string, std::vector<int64_t>>;

  TORCH_ARG(std::vector<std::string>, to_fallback);  // patterns of what goes to the fallback
  TORCH_ARG(bool, depthwise) = false;                // whether depthwise kernels stay with Tensorion
  TORCH_ARG(bool, pointwise) = true;  // false: no mode of size 1 counts in the order, as in earlier versions
  TORCH_ARG(bool, decay_vectors) = true;   // false: no weight decay of tensors with one mode larger than 1
  TORCH_ARG(std::vector<Pattern>, batch);  // batch_modes of what the patterns fit
  TORCH_ARG(std::vector<Pattern>, split);  // split_sizes; {1} keeps the kernel of a grouped convolution whole
};

// The parameters of a module in groups, Tensorion's first, as tensorion.param_groups of the Python package
// makes them. `options` are those of the groups, as libtorch does not merge them with the optimizer's;
// min_order and fallback are read from them. Kernels of grouped convolutions are split by their groups,
// depthwise ones go to the fallback.
std::vector<torch::optim::OptimizerParamGroup> param_groups(const torch::nn::Module& module,
                                                            const ParamGroupRules& rules = {},
                                                            const TensorionOptions& options = {});

// A table of the optimizer's parameters: what updates each of them, why, and how. With the module, parameters
// are called by their names.
std::string describe(const Tensorion& optimizer);
std::string describe(const Tensorion& optimizer, const torch::nn::Module& module);

}  // namespace tensorion
