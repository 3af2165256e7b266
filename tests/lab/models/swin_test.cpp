#include "lab/models/swin.h"

#include "tests/lab/models/golden.h"

namespace tensorion::lab {
namespace {

using tensorion::testing::expect_error;

const auto& golden() {
  static const auto values = testing::golden("swin.json");
  return values;
}

TEST(Swin, StructureMatchesTimm) { testing::expect_structure(golden()); }

TEST(Swin, OutputsMatchTimm) { testing::expect_outputs(golden()); }

TEST(Swin, InitialWeightsMatchTimm) { testing::expect_initial_weights(golden()); }

TEST(Swin, GradientsMatchTimm) { testing::expect_training_step(golden()); }

TEST(Swin, DecreasesTheLoss) {
  const ModelOptions options{.name = "swin_tiny_patch4_window7_224",
                             .classes = 4,
                             .width = 0.34,
                             .image_size = 32,
                             .depths = {2, 1, 1, 1}};
  testing::expect_learns(options, {8, 3, 32, 32}, 0.02);
}

TEST(Swin, StochasticDepthAppliesInTrainingOnly) {
  at::manual_seed(3);
  Swin model({.image_size = 32, .dim = 8, .depths = {1, 2}, .heads = 2, .drop_path = 0.5, .classes = 4});
  const auto batch = testing::images({2, 3, 32, 32});
  EXPECT_FALSE(at::equal(model.forward(batch), model.forward(batch)));
  model.eval();
  EXPECT_TRUE(at::equal(model.forward(batch), model.forward(batch)));
}

TEST(Swin, RejectsInvalidOptions) {
  expect_error<c10::ValueError>([] { Swin({.image_size = 100}); },
                                "[tensorion.swin] image_size must be a multiple of 32");
  expect_error<c10::ValueError>([] { Swin({.dim = 100}); }, "got dim 100 and heads 3");
  expect_error<c10::ValueError>([] { Swin({.depths = {}}); }, "depths must have 1 to 8 entries");
  expect_error<c10::ValueError>([] { Swin({.depths = {2, 0, 2, 2}}); }, "got [2, 0, 2, 2]");
  expect_error<c10::ValueError>([] { Swin({.window = 0}); }, "window must be at least 1");
  expect_error<c10::ValueError>([] { Swin({.drop_path = 1.0}); }, "drop_path must be in [0, 1), got 1");
  Swin model({.image_size = 32, .dim = 8, .depths = {1, 1}, .heads = 2});
  expect_error<c10::ValueError>(
      [&] { model.forward(at::zeros({1, 3, 64, 64})); },
      "[tensorion.swin] expected images of shape (N, 3, 32, 32), got [1, 3, 64, 64]");
}

}  // namespace
}  // namespace tensorion::lab
