// Vision transformers: Dosovitskiy et al., "An image is worth 16x16 words" (2021), and timm's "gap" variant,
// which has no class token and uses global average pooling.
#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lab/models/classifier.h"
#include "lab/models/layers.h"

namespace tensorion::lab {

struct VitOptions {
  int64_t image_size = 224;
  int64_t patch = 16;
  int64_t dim = 768;
  int64_t depth = 12;
  int64_t heads = 12;
  bool class_token = true;  // if true, the head reads the class token; if false, the mean over the patches
  bool qkv_bias = true;
  double layer_scale = 0.0;  // initial value of LayerScale in each branch; 0 means no LayerScale
  int64_t channels = 3;
  int64_t classes = 1000;
};

class VitBlock;

class Vit : public Classifier {
 public:
  explicit Vit(const VitOptions& options);

  at::Tensor forward(at::Tensor images) override;
  std::string head_name() const override { return "head"; }
  void reset_head() override { init_linear(*head_); }

 private:
  VitOptions options_;
  at::Tensor cls_token_;
  at::Tensor pos_embed_;
  std::shared_ptr<PatchEmbed> patch_embed_;
  std::vector<std::shared_ptr<VitBlock>> blocks_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear head_{nullptr};
};

}  // namespace tensorion::lab
