#include "lab/models/resnet.h"

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "lab/models/layers.h"

namespace tensorion::lab {
namespace {

torch::nn::Conv2d convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

}  // namespace

// relu(shortcut(x) + branch(x)). The branch has two or three convolutions, each followed by a batch
// normalization and, except for the last, a ReLU.
class ResidualBlock : public torch::nn::Module {
 public:
  ResidualBlock(bool bottleneck, int64_t in, int64_t width, int64_t stride) {
    const int64_t out = bottleneck ? 4 * width : width;
    if (bottleneck) {
      add_convolution(in, width, 1, 1);
      add_convolution(width, width, 3, stride);
      add_convolution(width, out, 1, 1);
    } else {
      add_convolution(in, width, 3, stride);
      add_convolution(width, out, 3, 1);
    }
    if (stride != 1 || in != out) {
      const auto downsample = register_module("downsample", torch::nn::ModuleList());
      downsample_conv_ = convolution(in, out, 1, stride);
      downsample_bn_ = torch::nn::BatchNorm2d(out);
      downsample->push_back(downsample_conv_);
      downsample->push_back(downsample_bn_);
    }
  }

  // Makes the branch output zero, so that training starts with the shortcut alone.
  void zero_branch() { torch::nn::init::zeros_(bns_.back()->weight); }

  at::Tensor forward(const at::Tensor& x) {
    auto branch = x;
    for (size_t i = 0; i < convs_.size(); ++i) {
      branch = bns_[i]->forward(convs_[i]->forward(branch));
      if (i + 1 < convs_.size()) branch.relu_();
    }
    branch.add_(downsample_conv_ ? downsample_bn_->forward(downsample_conv_->forward(x)) : x);
    return branch.relu_();
  }

 private:
  void add_convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
    const auto index = std::to_string(convs_.size() + 1);
    convs_.push_back(register_module("conv" + index, convolution(in, out, kernel, stride)));
    bns_.push_back(register_module("bn" + index, torch::nn::BatchNorm2d(out)));
  }

  std::vector<torch::nn::Conv2d> convs_;
  std::vector<torch::nn::BatchNorm2d> bns_;
  torch::nn::Conv2d downsample_conv_{nullptr};
  torch::nn::BatchNorm2d downsample_bn_{nullptr};
};

int64_t resnet_width(double width) {
  TORCH_CHECK_VALUE(std::isfinite(width) && width >= 0.125 && width <= 64.0,
                    "[tensorion.resnet] width must be in [0.125, 64] (0.125 means 8 channels), got ", width);
  return 8 * std::llround(64.0 * width / 8.0);
}

ResNet::ResNet(const ResNetOptions& options) : channels_(options.channels), stem_(options.stem) {
  check_channels_and_classes(options.channels, options.classes, "resnet");
  TORCH_CHECK_VALUE(
      options.depths.size() == 4 && *std::min_element(options.depths.begin(), options.depths.end()) >= 1,
      "[tensorion.resnet] depths must have four entries, each at least 1, got ",
      at::IntArrayRef(options.depths));

  int64_t width = resnet_width(options.width);
  int64_t in = width;
  conv1_ = register_module(
      "conv1", stem_ == Stem::kCifar ? convolution(channels_, in, 3, 1) : convolution(channels_, in, 7, 2));
  bn1_ = register_module("bn1", torch::nn::BatchNorm2d(in));
  for (size_t stage = 0; stage < options.depths.size(); ++stage, width *= 2) {
    const auto layer = register_module("layer" + std::to_string(stage + 1), torch::nn::ModuleList());
    for (int64_t i = 0; i < options.depths[stage]; ++i) {
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      blocks_.push_back(std::make_shared<ResidualBlock>(options.bottleneck, in, width, stride));
      layer->push_back(blocks_.back());
      in = options.bottleneck ? 4 * width : width;
    }
  }
  fc_ = register_module("fc", torch::nn::Linear(in, options.classes));

  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* conv = module->as<torch::nn::Conv2d>()) {
      torch::nn::init::kaiming_normal_(conv->weight, 0.0, torch::kFanOut, torch::kReLU);
    }
  }
  for (const auto& block : blocks_) block->zero_branch();
}

at::Tensor ResNet::forward(at::Tensor images) {
  check_images(images, channels_, /*size=*/0, "resnet");
  auto x = bn1_->forward(conv1_->forward(images)).relu_();
  if (stem_ == Stem::kImageNet) x = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
  for (const auto& block : blocks_) x = block->forward(x);
  return fc_->forward(x.mean({2, 3}));
}

}  // namespace tensorion::lab
