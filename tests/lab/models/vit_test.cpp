#include "lab/models/vit.h"

#include "tests/lab/models/golden.h"

namespace tensorion::lab {
namespace {

using tensorion::testing::expect_error;

const auto& golden() {
  static const auto values = testing::golden("vit.json");
  return values;
}

TEST(Vit, StructureMatchesTimm) { testing::expect_structure(golden()); }

TEST(Vit, OutputsMatchTimm) { testing::expect_outputs(golden()); }

TEST(Vit, InitialWeightsMatchTimm) { testing::expect_initial_weights(golden()); }

TEST(Vit, GradientsMatchTimm) { testing::expect_training_step(golden()); }

TEST(Vit, DecreasesTheLoss) {
  ModelOptions options{
      .name = "vit_small_patch16_224", .classes = 4, .width = 0.34, .image_size = 32, .depths = {2}};
  testing::expect_learns(options, {8, 3, 32, 32}, 0.02);
  options.name = "vit_medium_patch16_gap_256";
  testing::expect_learns(options, {8, 3, 32, 32}, 0.02);
}

TEST(Vit, RejectsInvalidOptions) {
  expect_error<c10::ValueError>(
      [] { Vit({.image_size = 100}); },
      "[tensorion.vit] image_size must be a multiple of the patch size 16, got 100");
  expect_error<c10::ValueError>([] { Vit({.dim = 100, .heads = 3}); }, "got dim 100 and heads 3");
  expect_error<c10::ValueError>([] { Vit({.depth = 0}); }, "depth must be at least 1, got 0");
  expect_error<c10::ValueError>([] { Vit({.classes = -1}); }, "classes must be at least 1, got -1");
  Vit model({.image_size = 32, .dim = 8, .depth = 1, .heads = 2});
  expect_error<c10::ValueError>(
      [&] { model.forward(at::zeros({1, 3, 32, 48})); },
      "[tensorion.vit] expected images of shape (N, 3, 32, 32), got [1, 3, 32, 48]");
}

}  // namespace
}  // namespace tensorion::lab
