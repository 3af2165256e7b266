// Layers shared by several models. Their names and initializations follow timm.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>
#include <string>

namespace tensorion::lab {

// Throws if the number of image channels or of classes is less than 1.
void check_channels_and_classes(int64_t channels, int64_t classes, const std::string& model);

// Throws if the shape of the images is not (N, channels, size, size). A size of 0 allows any height and
// width.
void check_images(const at::Tensor& images, int64_t channels, int64_t size, const std::string& model);

// Fills the tensor with samples from N(0, std^2), truncated to [-2, 2].
void trunc_normal_(const at::Tensor& tensor, double std);

// Initializes a linear layer as timm's transformers do: weights by trunc_normal_ with std 0.02, biases 0.
void init_linear(torch::nn::LinearImpl& linear);

// Calls init_linear on every linear submodule, in order of registration.
void init_linears(torch::nn::Module& module);

torch::nn::LayerNorm layer_norm(int64_t dim, double eps);

// Stochastic depth: in training, sets the branch of each sample to zero with probability `rate` and otherwise
// divides it by 1 - rate.
at::Tensor drop_path(const at::Tensor& branch, double rate, bool training);

// Maps each non-overlapping patch of the image to `dim` features. The output is (N, H, W, dim).
class PatchEmbed : public torch::nn::Module {
 public:
  PatchEmbed(int64_t channels, int64_t patch, int64_t dim, bool normalized);
  at::Tensor forward(const at::Tensor& images);

 private:
  torch::nn::Conv2d proj_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
};

// fc2(gelu(fc1(x))) with 4 * dim hidden features.
class Mlp : public torch::nn::Module {
 public:
  explicit Mlp(int64_t dim);
  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::Linear fc1_{nullptr};
  torch::nn::Linear fc2_{nullptr};
};

}  // namespace tensorion::lab
