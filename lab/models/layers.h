// The layers that models share, named and initialized as in timm.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>
#include <string>

namespace tensorion::lab {

// Refuses numbers of image channels and of classes below 1.
void check_interface(int64_t channels, int64_t classes, const std::string& model);

// Refuses images that are not (N, channels, size, size); size 0 allows any.
void check_images(const at::Tensor& images, int64_t channels, int64_t size, const std::string& model);

// x ~ N(0, std^2) given |x| <= 2.
void trunc_normal_(const at::Tensor& tensor, double std);

// Weights trunc_normal_(0.02), biases 0: timm's linear layers in transformers.
void init_linear(torch::nn::LinearImpl& linear);

// init_linear for every linear layer inside, in order of registration.
void init_linears(torch::nn::Module& module);

torch::nn::LayerNorm layer_norm(int64_t dim, double eps);

// Stochastic depth: in training each sample's branch is zero with probability
// `rate`, else divided by 1 - rate.
at::Tensor drop_path(const at::Tensor& branch, double rate, bool training);

// Non-overlapping patches, each mapped to `dim` features: (N, H, W, dim).
class PatchEmbed : public torch::nn::Module {
 public:
  PatchEmbed(int64_t channels, int64_t patch, int64_t dim, bool normalized);
  at::Tensor forward(const at::Tensor& images);

 private:
  torch::nn::Conv2d proj_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
};

// fc2(gelu(fc1(x))), 4 dim hidden features.
class Mlp : public torch::nn::Module {
 public:
  explicit Mlp(int64_t dim);
  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::Linear fc1_{nullptr};
  torch::nn::Linear fc2_{nullptr};
};

}  // namespace tensorion::lab
