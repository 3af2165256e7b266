#include "lab/models/models.h"

#include "lab/models/state_dict.h"
#include "tests/lab/models/golden.h"

namespace tensorion::lab {
namespace {

using tensorion::testing::expect_error;

int64_t parameter_count(const ModelOptions& options) {
  int64_t count = 0;
  for (const auto& parameter : make_model(options)->parameters()) count += parameter.numel();
  return count;
}

TEST(Models, BuildsEveryModelWithItsHead) {
  EXPECT_EQ(model_names().size(), 9U);
  for (const auto& name : model_names()) {
    const bool resnet = name.starts_with("resnet");
    ModelOptions options{.name = name, .classes = 7, .channels = 1, .width = 0.34};
    if (!resnet) options.image_size = 64;
    options.depths = name.starts_with("vit") ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 1, 1, 1};
    const auto model = make_model(options);
    EXPECT_TRUE(model->is_training());
    EXPECT_EQ(model->forward(at::zeros({2, 1, 64, 64})).sizes(), (std::vector<int64_t>{2, 7})) << name;
    const auto tensors = state_dict(*model);
    EXPECT_EQ(tensors.at(model->head_name() + ".weight").size(0), 7) << name;
    EXPECT_EQ(tensors.at(model->head_name() + ".bias").sizes(), (std::vector<int64_t>{7})) << name;
    EXPECT_EQ(model_image_size(options), resnet ? 0 : 64) << name;
  }
}

// The values of timm 1.0, in vision_transformer.py and swin_transformer.py.
TEST(Models, PretrainedConfigurationsMatchTimm) {
  const auto vit = pretrained_config("vit_base_patch16_224");
  ASSERT_TRUE(vit);
  EXPECT_EQ(vit->mean, (std::array<double, 3>{0.5, 0.5, 0.5}));
  EXPECT_EQ(vit->std, (std::array<double, 3>{0.5, 0.5, 0.5}));
  EXPECT_TRUE(vit->is_bicubic);
  EXPECT_EQ(vit->crop_pct, 0.9);
  EXPECT_EQ(pretrained_config("vit_medium_patch16_gap_256")->crop_pct, 0.95);
  const auto swin = pretrained_config("swin_base_patch4_window7_224");
  ASSERT_TRUE(swin);
  EXPECT_EQ(swin->mean, (std::array<double, 3>{0.485, 0.456, 0.406}));
  EXPECT_TRUE(swin->is_bicubic);
  EXPECT_EQ(swin->crop_pct, 0.9);
  EXPECT_FALSE(pretrained_config("resnet18"));
}

TEST(Models, WidthScalesChannelsAndHeads) {
  // The exact published numbers of parameters.
  EXPECT_EQ(parameter_count({.name = "resnet18"}), 11689512);
  EXPECT_EQ(parameter_count({.name = "vit_small_patch16_224"}), 22050664);
  EXPECT_EQ(parameter_count({.name = "swin_tiny_patch4_window7_224"}), 28288354);
  const auto shape = [](const ModelOptions& options, const std::string& name) {
    return state_dict(*make_model(options)).at(name).sizes().vec();
  };
  // Regression test: a width that leaves no channel or head was silently replaced by a larger one.
  expect_error<c10::ValueError>([] { make_model({.name = "swin_tiny_patch4_window7_224", .width = 0.1}); },
                                "width must leave at least one of 3 heads, got 0.1");
  EXPECT_EQ(shape({.name = "resnet18", .width = 0.5}, "layer4.0.conv1.weight"),
            (std::vector<int64_t>{256, 128, 3, 3}));
  EXPECT_EQ(shape({.name = "vit_small_patch16_224", .width = 0.5}, "blocks.11.attn.qkv.weight"),
            (std::vector<int64_t>{576, 192}));
  EXPECT_EQ(shape({.name = "swin_base_patch4_window7_224", .width = 0.25},
                  "layers.3.blocks.0.attn.relative_position_bias_table"),
            (std::vector<int64_t>{169, 8}));
}

TEST(Models, ImageSizeDefaultsToTheName) {
  EXPECT_EQ(model_image_size({.name = "vit_medium_patch16_gap_256"}), 256);
  EXPECT_EQ(model_image_size({.name = "swin_small_patch4_window7_224"}), 224);
  EXPECT_EQ(model_image_size({.name = "swin_small_patch4_window7_224", .image_size = 96}), 96);
}

TEST(Models, SeedDeterminesTheWeights) {
  for (const auto& name : {"resnet18", "vit_small_patch16_224", "swin_tiny_patch4_window7_224"}) {
    ModelOptions options{.name = name, .width = 0.34};
    const auto weights = [&](uint64_t seed) {
      at::manual_seed(seed);
      return state_dict(*make_model(options));
    };
    const auto first = weights(1), again = weights(1), other = weights(2);
    const auto head = make_model(options)->head_name() + ".weight";
    for (const auto& [key, tensor] : first) EXPECT_TRUE(at::equal(tensor, again.at(key))) << key;
    EXPECT_FALSE(at::equal(first.at(head), other.at(head)));
  }
}

TEST(Models, RejectsInvalidOptions) {
  expect_error<c10::ValueError>(
      [] { make_model({.name = "resnet19"}); },
      "[tensorion.make_model] unknown model \"resnet19\"; the models are resnet18, resnet34, "
      "resnet50, vit_small_patch16_224, ");
  expect_error<c10::ValueError>([] { make_model({.name = "vit_small_patch16_224", .width = -1.0}); },
                                "width must be in (0, 64], got -1");
  expect_error<c10::ValueError>([] { make_model({.name = "vit_small_patch16_224", .depths = {1, 2}}); },
                                "depths of vit_small_patch16_224 must have one entry, got [1, 2]");
  expect_error<c10::ValueError>([] { make_model({.name = "swin_tiny_patch4_window7_224", .depths = {1}}); },
                                "must have four entries, got [1]");
  expect_error<c10::ValueError>([] { make_model({.name = "vit_base_patch16_224", .image_size = -16}); },
                                "got -16");
}

TEST(Models, RecognizesModelsByTheirWeights) {
  const auto recognized = [](const ModelOptions& options) {
    return recognize_model(state_dict(*make_model(options)));
  };
  EXPECT_EQ(recognized({.name = "resnet18"}), "--model resnet18 --stem imagenet");
  EXPECT_EQ(recognized({.name = "resnet34", .width = 0.25, .stem = Stem::kCifar}),
            "--model resnet34 --width 0.25 --stem cifar");
  EXPECT_EQ(recognized({.name = "resnet50", .width = 0.125, .depths = {1, 2, 1, 1}}),
            "--model resnet50 --width 0.125 --depths 1,2,1,1 --stem imagenet");
  EXPECT_EQ(recognized({.name = "vit_small_patch16_224", .depths = {2}}),
            "--model vit_small_patch16_224 --depths 2");
  EXPECT_EQ(recognized({.name = "vit_medium_patch16_gap_256", .width = 0.5}),
            "--model vit_medium_patch16_gap_256 --width 0.5");
  EXPECT_EQ(recognized({.name = "swin_small_patch4_window7_224", .image_size = 32}),
            "--model swin_small_patch4_window7_224");
  EXPECT_EQ(recognize_model({}), "");
  EXPECT_EQ(
      recognize_model({{"layer18446744073709551615.1.x", at::ones({1})}, {"conv1.weight", at::ones({})}}),
      "");
}

}  // namespace
}  // namespace tensorion::lab
