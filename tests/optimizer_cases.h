// Parameters and gradients for the tests of the optimizer.
#pragma once

#include "tensorion/optimizer.h"
#include "tests/support.h"

namespace tensorion::testing {

inline at::Tensor parameter(at::IntArrayRef shape, uint64_t seed) {
  return gaussian(shape, seed).set_requires_grad(true);
}

inline const TensorionOptions& options_of(const torch::optim::OptimizerParamGroup& group) {
  return static_cast<const TensorionOptions&>(group.options());
}

// A kernel, a matrix and a vector that require gradients.
inline std::vector<at::Tensor> parameters(uint64_t seed = 1) {
  std::vector<at::Tensor> params{parameter({6, 4, 3, 3}, seed), parameter({5, 7}, seed + 1),
                                 parameter({8}, seed + 2)};
  return params;
}

inline void set_gradients(const std::vector<at::Tensor>& params, uint64_t seed) {
  for (size_t i = 0; i < params.size(); ++i) params[i].mutable_grad() = gaussian(params[i].sizes(), seed + i);
}

inline std::vector<at::Tensor> copies(const std::vector<at::Tensor>& params) {
  std::vector<at::Tensor> out;
  for (const auto& param : params) out.push_back(param.detach().clone());
  return out;
}

inline void expect_unchanged(const std::vector<at::Tensor>& params, const std::vector<at::Tensor>& before) {
  for (size_t i = 0; i < params.size(); ++i) EXPECT_TRUE(at::equal(params[i].detach(), before[i])) << i;
}

}  // namespace tensorion::testing
