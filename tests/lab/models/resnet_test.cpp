#include "lab/models/resnet.h"

#include "tests/lab/models/golden.h"

namespace tensorion::lab {
namespace {

using tensorion::testing::expect_error;

const auto& golden() {
  static const auto values = testing::golden("resnet.json");
  return values;
}

TEST(ResNet, StructureMatchesTimm) { testing::expect_structure(golden()); }

TEST(ResNet, OutputsMatchTimm) { testing::expect_outputs(golden()); }

TEST(ResNet, InitialWeightsMatchTimm) { testing::expect_initial_weights(golden()); }

TEST(ResNet, GradientsAndStatisticsMatchTimm) { testing::expect_training_step(golden()); }

TEST(ResNet, DecreasesTheLoss) {
  ModelOptions options{
      .name = "resnet18", .classes = 4, .width = 0.125, .stem = Stem::kCifar, .depths = {1, 1, 1, 1}};
  testing::expect_learns(options, {8, 3, 16, 16}, 0.1);
  options.name = "resnet50";
  options.stem = Stem::kImageNet;
  testing::expect_learns(options, {8, 3, 64, 64}, 0.1);
}

TEST(ResNet, WidthIsAMultipleOfEight) {
  EXPECT_EQ(resnet_width(1.0), 64);
  EXPECT_EQ(resnet_width(0.25), 16);
  EXPECT_EQ(resnet_width(0.3), 16);
  EXPECT_EQ(resnet_width(1.5), 96);
  EXPECT_EQ(resnet_width(0.125), 8);
}

TEST(ResNet, RejectsInvalidOptions) {
  expect_error<c10::ValueError>(
      [] { ResNet({.width = 0.0}); },
      "[tensorion.resnet] width must be in [0.125, 64] (0.125 means 8 channels), got 0");
  expect_error<c10::ValueError>([] { ResNet({.width = NAN}); }, "got nan");
  expect_error<c10::ValueError>([] { ResNet({.depths = {1, 2, 3}}); },
                                "depths must have four entries, each at least 1");
  expect_error<c10::ValueError>([] { ResNet({.depths = {1, 0, 1, 1}}); }, "got [1, 0, 1, 1]");
  expect_error<c10::ValueError>([] { ResNet({.classes = 0}); }, "classes must be at least 1, got 0");
  expect_error<c10::ValueError>([] { ResNet({.channels = 0}); }, "channels must be at least 1, got 0");
  ResNet model({.depths = {1, 1, 1, 1}, .width = 0.125});
  expect_error<c10::ValueError>(
      [&] { model.forward(at::zeros({1, 1, 32, 32})); },
      "[tensorion.resnet] expected images of shape (N, 3, height, width), got [1, 1, 32, 32]");
  expect_error<c10::ValueError>([&] { model.forward(at::zeros({3, 32, 32})); }, "got [3, 32, 32]");
}

}  // namespace
}  // namespace tensorion::lab
