// Residual networks: He, Zhang, Ren and Sun, "Deep residual learning for image recognition" (2016). In
// bottleneck blocks, the 3x3 convolution has the stride (ResNet v1.5).
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lab/models/classifier.h"

namespace tensorion::lab {

enum class Stem {
  kImageNet,  // 7x7 convolution with stride 2, then 3x3 max pooling with stride 2
  kCifar,     // 3x3 convolution with stride 1 and no pooling, for images of 32 x 32 or 64 x 64 pixels
};

struct ResNetOptions {
  bool bottleneck = false;  // true: 1x1, 3x3, 1x1 blocks with 4 times the channels out; false: 3x3, 3x3
  std::vector<int64_t> depths = {2, 2, 2, 2};  // number of blocks in each of the four stages
  double width = 1.0;  // the stages have w, 2w, 4w, 8w channels, w = resnet_width(width)
  Stem stem = Stem::kImageNet;
  int64_t channels = 3;
  int64_t classes = 1000;
};

// Returns the number of channels of the first stage: 64 * width, rounded to a multiple of 8.
int64_t resnet_width(double width);

class ResidualBlock;

class ResNet : public Classifier {
 public:
  explicit ResNet(const ResNetOptions& options);

  at::Tensor forward(at::Tensor images) override;
  std::string head_name() const override { return "fc"; }
  void reset_head() override { fc_->reset_parameters(); }

 private:
  int64_t channels_;
  Stem stem_;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  std::vector<std::shared_ptr<ResidualBlock>> blocks_;
  torch::nn::Linear fc_{nullptr};
};

}  // namespace tensorion::lab
