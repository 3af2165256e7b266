// Swin transformers: Liu et al., "Swin transformer: hierarchical vision transformer using shifted windows"
// (2021).
#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lab/models/classifier.h"
#include "lab/models/layers.h"

namespace tensorion::lab {

struct SwinOptions {
  int64_t image_size = 224;
  int64_t patch = 4;
  int64_t window = 7;
  int64_t dim = 96;                            // features in the first stage; doubled in each later stage
  std::vector<int64_t> depths = {2, 2, 6, 2};  // number of blocks in each stage
  int64_t heads = 3;                           // in the first stage; doubled in each later stage
  double drop_path = 0.1;                      // rate of the last block; grows linearly from 0
  int64_t channels = 3;
  int64_t classes = 1000;
};

class SwinStage;
class SwinHead;

class Swin : public Classifier {
 public:
  explicit Swin(const SwinOptions& options);

  at::Tensor forward(at::Tensor images) override;
  std::string head_name() const override { return "head.fc"; }
  void reset_head() override;

 private:
  SwinOptions options_;
  std::shared_ptr<PatchEmbed> patch_embed_;
  std::vector<std::shared_ptr<SwinStage>> stages_;
  torch::nn::LayerNorm norm_{nullptr};
  std::shared_ptr<SwinHead> head_;
};

}  // namespace tensorion::lab
