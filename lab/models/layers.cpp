#include "lab/models/layers.h"

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/types.h>

#include <cmath>

namespace tensorion::lab {

void check_channels_and_classes(int64_t channels, int64_t classes, const std::string& model) {
  TORCH_CHECK_VALUE(channels >= 1, "[tensorion.", model, "] channels must be at least 1, got ", channels);
  TORCH_CHECK_VALUE(classes >= 1, "[tensorion.", model, "] classes must be at least 1, got ", classes);
}

void check_images(const at::Tensor& images, int64_t channels, int64_t size, const std::string& model) {
  TORCH_CHECK_VALUE(images.dim() == 4 && images.size(1) == channels &&
                        (size == 0 || (images.size(2) == size && images.size(3) == size)),
                    "[tensorion.", model, "] expected images of shape (N, ", channels, ", ",
                    size == 0 ? "height, width" : std::to_string(size) + ", " + std::to_string(size),
                    "), got ", images.sizes());
}

void trunc_normal_(const at::Tensor& tensor, double std) {
  const torch::NoGradGuard no_grad;
  constexpr double kBound = 2.0;
  // Inverse transform sampling: the inverse of the error function at uniform random values.
  const double limit = std::erf(kBound / std / std::sqrt(2.0));
  tensor.uniform_(-limit, limit).erfinv_().mul_(std * std::sqrt(2.0)).clamp_(-kBound, kBound);
}

void init_linear(torch::nn::LinearImpl& linear) {
  trunc_normal_(linear.weight, 0.02);
  if (linear.bias.defined()) torch::nn::init::zeros_(linear.bias);
}

void init_linears(torch::nn::Module& module) {
  for (const auto& child : module.modules(/*include_self=*/false)) {
    if (auto* linear = child->as<torch::nn::Linear>()) init_linear(*linear);
  }
}

torch::nn::LayerNorm layer_norm(int64_t dim, double eps) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({dim}).eps(eps));
}

at::Tensor drop_path(const at::Tensor& branch, double rate, bool training) {
  if (!training || rate == 0.0) return branch;
  std::vector<int64_t> shape(branch.dim(), 1);
  shape[0] = branch.size(0);
  return branch * at::empty(shape, branch.options()).bernoulli_(1.0 - rate).div_(1.0 - rate);
}

PatchEmbed::PatchEmbed(int64_t channels, int64_t patch, int64_t dim, bool normalized) {
  proj_ = register_module("proj",
                          torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, dim, patch).stride(patch)));
  if (normalized) norm_ = register_module("norm", layer_norm(dim, 1e-5));
}

at::Tensor PatchEmbed::forward(const at::Tensor& images) {
  const auto patches = proj_->forward(images).permute({0, 2, 3, 1});
  return norm_ ? norm_->forward(patches) : patches;
}

Mlp::Mlp(int64_t dim) {
  fc1_ = register_module("fc1", torch::nn::Linear(dim, 4 * dim));
  fc2_ = register_module("fc2", torch::nn::Linear(4 * dim, dim));
}

at::Tensor Mlp::forward(const at::Tensor& x) { return fc2_->forward(at::gelu(fc1_->forward(x))); }

}  // namespace tensorion::lab
