// The models by name. The names are timm's.
#pragma once

#include <cstdint>
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

  // Scales the width: the channels of a ResNet (see resnet_width), the number of heads of a
  // transformer, whose features per head stay 64 (ViT) or 32 (Swin).
  double width = 1.0;

  Stem stem = Stem::kImageNet;  // of a ResNet; the transformers have none

  // Height and width of the images; 0: those in the name. A multiple of 16 (ViT) or 32 (Swin);
  // a ResNet takes images of any size, whatever stands here.
  int64_t image_size = 0;

  // Blocks of each stage, one number for a ViT and four for the others; empty: those of the name.
  std::vector<int64_t> depths = {};  // NOLINT(readability-redundant-member-init): gcc warns without
};

// resnet18, resnet34, resnet50, vit_small_patch16_224, vit_base_patch16_224,
// vit_medium_patch16_gap_256, swin_{tiny,small,base}_patch4_window7_224.
const std::vector<std::string>& model_names();

// The height and width of the images that the model is made for; 0 if it takes any size.
int64_t model_image_size(const ModelOptions& options);

// The model whose weights these are, judged by their names and shapes, as flags of the program: "--model
// resnet18
// --width 0.25 --stem cifar". Empty if it is none of ours.
std::string recognize_model(const NamedTensors& tensors);

// Fresh weights, in training mode.
Model make_model(const ModelOptions& options);

}  // namespace tensorion::lab
