// Creates models by name. The names are those of timm.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/io/safetensors.h"
#include "lab/models/classifier.h"
#include "lab/models/resnet.h"

namespace tensorion::lab {

struct ModelOptions {
  std::string name = "resnet18";  // one of model_names()
  int64_t classes = 1000;
  int64_t channels = 3;  // of the images

  // Multiplies the number of channels of a ResNet (see resnet_width) or the number of heads of a transformer.
  // The number of features per head stays 64 (ViT) or 32 (Swin).
  double width = 1.0;

  Stem stem = Stem::kImageNet;  // of a ResNet; ignored by the transformers

  // Height and width of the images: a multiple of 16 (ViT) or 32 (Swin). 0 means the size in the model's
  // name. ResNets ignore it; they accept images of any size.
  int64_t image_size = 0;

  // Number of blocks in each stage: one number for a ViT, four for the others. Empty means the model's
  // default.
  std::vector<int64_t> depths = {};  // NOLINT(readability-redundant-member-init): gcc warns without
};

// resnet18, resnet34, resnet50, vit_small_patch16_224, vit_base_patch16_224,
// vit_medium_patch16_gap_256, swin_{tiny,small,base}_patch4_window7_224.
const std::vector<std::string>& model_names();

// Returns the height and width of the images that the model expects, or 0 if it accepts any size.
int64_t model_image_size(const ModelOptions& options);

// How timm prepares images for the pretrained weights of a model: its `pretrained_cfg`.
struct PretrainedConfig {
  std::array<double, 3> mean;
  std::array<double, 3> std;
  bool is_bicubic = true;
  double crop_pct = 0.9;
};

// Returns none for a ResNet, which the paper trains from random weights.
std::optional<PretrainedConfig> pretrained_config(const std::string& model);

// Infers the model from the names and shapes of its weights. Returns command-line flags such as
// "--model resnet18 --width 0.25 --stem cifar", or an empty string if no model matches.
std::string recognize_model(const NamedTensors& tensors);

// Returns a newly initialized model in training mode.
Model make_model(const ModelOptions& options);

}  // namespace tensorion::lab
