#include "lab/models/models.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <utility>
#include <variant>

#include "lab/models/swin.h"
#include "lab/models/vit.h"

namespace tensorion::lab {
namespace {

using Structure = std::variant<ResNetOptions, VitOptions, SwinOptions>;

const std::vector<std::pair<std::string, Structure>>& structures() {
  static const std::vector<std::pair<std::string, Structure>> all{
      {"resnet18", ResNetOptions{.bottleneck = false, .depths = {2, 2, 2, 2}}},
      {"resnet34", ResNetOptions{.bottleneck = false, .depths = {3, 4, 6, 3}}},
      {"resnet50", ResNetOptions{.bottleneck = true, .depths = {3, 4, 6, 3}}},
      {"vit_small_patch16_224", VitOptions{.dim = 384, .heads = 6}},
      {"vit_base_patch16_224", VitOptions{.dim = 768, .heads = 12}},
      {"vit_medium_patch16_gap_256", VitOptions{.image_size = 256,
                                                .dim = 512,
                                                .heads = 8,
                                                .class_token = false,
                                                .qkv_bias = false,
                                                .layer_scale = 1e-6}},
      {"swin_tiny_patch4_window7_224", SwinOptions{.dim = 96, .depths = {2, 2, 6, 2}, .heads = 3}},
      {"swin_small_patch4_window7_224", SwinOptions{.dim = 96, .depths = {2, 2, 18, 2}, .heads = 3}},
      {"swin_base_patch4_window7_224", SwinOptions{.dim = 128, .depths = {2, 2, 18, 2}, .heads = 4}},
  };
  return all;
}

// Multiplies the number of heads by the width; the number of features per head stays the same.
template <typename Transformer>
void scale_heads(Transformer& structure, double width) {
  TORCH_CHECK_VALUE(std::isfinite(width) && width > 0.0 && width <= 64.0,
                    "[tensorion.make_model] width must be in (0, 64], got ", width);
  const int64_t features = structure.dim / structure.heads;
  const auto heads = std::llround(static_cast<double>(structure.heads) * width);
  TORCH_CHECK_VALUE(heads >= 1, "[tensorion.make_model] width must leave at least one of ", structure.heads,
                    " heads, got ", width);
  structure.heads = heads;
  structure.dim = features * structure.heads;
}

void adapt(ResNetOptions& structure, const ModelOptions& options) {
  structure.width = options.width;
  structure.stem = options.stem;
  if (!options.depths.empty()) structure.depths = options.depths;
}

void adapt(VitOptions& structure, const ModelOptions& options) {
  scale_heads(structure, options.width);
  if (options.image_size != 0) structure.image_size = options.image_size;
  if (options.depths.empty()) return;
  TORCH_CHECK_VALUE(options.depths.size() == 1, "[tensorion.make_model] depths of ", options.name,
                    " must have one entry, got ", at::IntArrayRef(options.depths));
  structure.depth = options.depths[0];
}

void adapt(SwinOptions& structure, const ModelOptions& options) {
  scale_heads(structure, options.width);
  if (options.image_size != 0) structure.image_size = options.image_size;
  if (options.depths.empty()) return;
  TORCH_CHECK_VALUE(options.depths.size() == 4, "[tensorion.make_model] depths of ", options.name,
                    " must have four entries, got ", at::IntArrayRef(options.depths));
  structure.depths = options.depths;
}

// The structure that belongs to the name, modified by the other options.
Structure structure_of(const ModelOptions& options) {
  for (const auto& [name, named] : structures()) {
    if (name != options.name) continue;
    auto structure = named;
    std::visit(
        [&](auto& specific) {
          adapt(specific, options);
          specific.channels = options.channels;
          specific.classes = options.classes;
        },
        structure);
    return structure;
  }
  TORCH_CHECK_VALUE(false, "[tensorion.make_model] unknown model \"", options.name, "\"; the models are ",
                    c10::Join(", ", model_names()));
}

Model build(const ResNetOptions& structure) { return std::make_shared<ResNet>(structure); }
Model build(const VitOptions& structure) { return std::make_shared<Vit>(structure); }
Model build(const SwinOptions& structure) { return std::make_shared<Swin>(structure); }

int64_t size_of(const ResNetOptions&) { return 0; }
int64_t size_of(const VitOptions& structure) { return structure.image_size; }
int64_t size_of(const SwinOptions& structure) { return structure.image_size; }

// What can be inferred about a model's structure from its weights.
struct Traits {
  int family = -1;       // the index in Structure; -1 if unknown
  bool variant = false;  // true for a ResNet with bottlenecks and a ViT with a class token
  int64_t features = 0;  // of the first layer
  std::vector<int64_t> depths = {};
};

Traits traits_of(const ResNetOptions& structure) { return {0, structure.bottleneck, 64, structure.depths}; }
Traits traits_of(const VitOptions& structure) {
  return {1, structure.class_token, structure.dim, {structure.depth}};
}
Traits traits_of(const SwinOptions& structure) { return {2, false, structure.dim, structure.depths}; }

Traits traits_of(const NamedTensors& tensors) {
  Traits traits;
  // The numbers have at most three digits, because the names come from a file.
  static const std::regex kResNetBlock(R"(layer([1-9]\d{0,2})\.(\d{1,3})\.)");
  static const std::regex kSwinBlock(R"(layers\.(\d{1,3})\.blocks\.(\d{1,3})\.)");
  static const std::regex kVitBlock(R"(blocks\.(\d{1,3})\.)");
  std::smatch match;
  const auto begins_with = [&](const std::string& name, const std::regex& pattern) {
    return std::regex_search(name, match, pattern, std::regex_constants::match_continuous);
  };
  const auto count = [&](size_t stage, size_t block) {
    if (traits.depths.size() <= stage) traits.depths.resize(stage + 1);
    traits.depths[stage] = std::max(traits.depths[stage], static_cast<int64_t>(block) + 1);
  };
  for (const auto& [name, tensor] : tensors) {
    if (name == "conv1.weight" || name == "patch_embed.proj.weight") {
      traits.family = name == "conv1.weight" ? 0 : std::max(1, traits.family);
      if (tensor.dim() > 0) traits.features = tensor.size(0);
    } else if (begins_with(name, kResNetBlock)) {
      count(std::stoul(match[1]) - 1, std::stoul(match[2]));
    } else if (begins_with(name, kSwinBlock)) {
      traits.family = 2;
      count(std::stoul(match[1]), std::stoul(match[2]));
    } else if (begins_with(name, kVitBlock)) {
      count(0, std::stoul(match[1]));
    }
  }
  traits.variant = tensors.contains("cls_token") || tensors.contains("layer1.0.conv3.weight");
  if (traits.features == 0 || traits.depths.empty()) traits.family = -1;
  return traits;
}

}  // namespace

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, structure] : structures()) all.push_back(name);
    return all;
  }();
  return names;
}

int64_t model_image_size(const ModelOptions& options) {
  return std::visit([](const auto& structure) { return size_of(structure); }, structure_of(options));
}

// From timm: vision_transformer.py and swin_transformer.py, `_cfg` and `default_cfgs` of the weights in1k.
std::optional<PretrainedConfig> pretrained_config(const std::string& model) {
  constexpr std::array<double, 3> kHalf{0.5, 0.5, 0.5};
  if (model == "vit_medium_patch16_gap_256") return PretrainedConfig{kHalf, kHalf, true, 0.95};
  if (model.starts_with("vit_")) return PretrainedConfig{kHalf, kHalf};
  if (model.starts_with("swin_")) return PretrainedConfig{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
  return std::nullopt;
}

std::string recognize_model(const NamedTensors& tensors) {
  const auto inferred = traits_of(tensors);
  std::string best;
  int fewest = 3;
  for (const auto& [name, structure] : structures()) {
    const auto own = std::visit([](const auto& specific) { return traits_of(specific); }, structure);
    if (own.family != inferred.family || own.variant != inferred.variant) continue;
    std::string flags = "--model " + name;
    int differences = 0;
    if (own.features != inferred.features) {
      flags +=
          c10::str(" --width ", static_cast<double>(inferred.features) / static_cast<double>(own.features));
      ++differences;
    }
    if (own.depths != inferred.depths) {
      flags += " --depths " + c10::Join(",", inferred.depths);
      ++differences;
    }
    if (differences < fewest) {
      fewest = differences;
      best = flags;
    }
  }
  if (!best.empty() && inferred.family == 0) {
    const auto& stem = tensors.at("conv1.weight");
    best += stem.dim() == 4 && stem.size(2) == 3 ? " --stem cifar" : " --stem imagenet";
  }
  return best;
}

Model make_model(const ModelOptions& options) {
  return std::visit([](const auto& structure) { return build(structure); }, structure_of(options));
}

}  // namespace tensorion::lab
