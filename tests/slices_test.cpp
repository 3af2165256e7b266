// Tests of slices, and of the groups that param_groups makes.
#include "tensorion/slices.h"

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <sstream>

#include "tensorion/param_groups.h"
#include "tests/optimizer_cases.h"

namespace tensorion {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

TEST(Slices, ShapesAndViews) {
  const Slicing experts{{0}, {}}, fused{{}, {3}}, both{{2, 0}, {2, 1}};
  EXPECT_EQ(experts.batch_size({8, 5, 6}), 8);
  EXPECT_EQ(experts.block_shapes({8, 5, 6}), (std::vector<std::vector<int64_t>>{{5, 6}}));
  EXPECT_EQ(fused.block_shapes({6, 4}), (std::vector<std::vector<int64_t>>(3, {2, 4})));
  EXPECT_EQ(both.block_shapes({4, 3, 2, 5}), (std::vector<std::vector<int64_t>>{{2, 5}, {1, 5}}));
  const auto x = gaussian({4, 3, 2, 5}, 1);
  const auto views = both.slices({x});
  ASSERT_EQ(views.size(), 16U);
  size_t i = 0;
  for (int64_t a = 0; a < 4; ++a) {
    for (int64_t c = 0; c < 2; ++c) {
      const auto slice = x.select(2, c).select(0, a);
      EXPECT_TRUE(at::equal(views[i], slice.narrow(0, 0, 2)));
      EXPECT_TRUE(views[i++].is_alias_of(x));
      EXPECT_TRUE(at::equal(views[i++], slice.narrow(0, 2, 1)));
    }
  }
  EXPECT_TRUE(experts.slices({at::zeros({0, 5, 6})}).empty());
}

TEST(Slices, StepMatchesSeparateParameters) {
  for (const std::string unfolding : {"balanced", "online", "(0,)"}) {
    for (const bool nesterov : {false, true}) {
      SCOPED_TRACE(c10::str(unfolding, " ", nesterov));
      const auto options =
          TensorionOptions(0.02).unfolding(UnfoldingStrategy::parse(unfolding)).nesterov(nesterov);
      auto stack = parameter({4, 6, 9}, 1);
      std::vector<at::Tensor> parts;
      for (const auto& part : stack.detach().unbind(0)) parts.push_back(part.clone().set_requires_grad(true));
      Tensorion whole({stack}, TensorionOptions(options).batch_modes({0}));
      Tensorion apart(parts, TensorionOptions(options).min_order(2));
      for (int k = 0; k < 4; ++k) {
        stack.mutable_grad() = gaussian({4, 6, 9}, 10 + k);
        for (int64_t i = 0; i < 4; ++i) parts[i].mutable_grad() = stack.grad()[i].clone();
        whole.step();
        apart.step();
      }
      for (int64_t i = 0; i < 4; ++i) expect_close(stack.detach()[i], parts[i].detach(), 1e-6);
    }
  }
}

TEST(Slices, ThrowsForBadOptions) {
  const auto expect_refused = [](const TensorionOptions& options, const std::string& part) {
    expect_error<c10::ValueError>([&] { Tensorion({gaussian({4, 6, 5}, 1)}, options); }, part);
  };
  expect_refused(
      TensorionOptions().batch_modes({3}),
      "batch_modes or split_sizes does not fit parameter 0 of group 0, shape [4, 6, 5]: [tensorion.step] "
      "batch_modes must be in [0, 3), got 3");
  expect_refused(TensorionOptions().batch_modes({1, 1}), "batch_modes must be distinct, got 1 twice");
  expect_refused(TensorionOptions().split_sizes({3}),
                 "expected a size that is divisible into 3 equal blocks, got 4");
  expect_refused(TensorionOptions().split_sizes({3, 2}), "add up to 4, got [3, 2], which add up to 5");
  expect_refused(TensorionOptions().split_sizes({-1}), "split_sizes must be positive, got -1");
  expect_refused(TensorionOptions().batch_modes({0}).unfolding(Modes{2}),
                 "unfolding (2,) does not fit parameter 0");
}

torch::nn::Sequential network() {
  using torch::nn::Conv2d, torch::nn::Conv2dOptions, torch::nn::Linear;
  return torch::nn::Sequential{Conv2d(Conv2dOptions(8, 12, 3).groups(4)),
                               Conv2d(Conv2dOptions(8, 8, 3).groups(8)),
                               Conv2d(Conv2dOptions(8, 4, 1).bias(false)), Linear(8, 24)};
}

TEST(ParamGroups, AppliesRulesAndDescribesThem) {
  const auto model = network();
  const auto groups = param_groups(*model, ParamGroupRules().split({{"3.weight", {3}}}).to_fallback({"2"}),
                                   TensorionOptions(0.02).fallback_lr(0.003));
  const Tensorion optimizer(groups);
  EXPECT_EQ(describe(optimizer, *model),
            "group  parameter  shape          algorithm  why        unfolding  matrix  scale   lr\n"
            "0      0.weight   4 x (3x2x3x3)  tensorion  slices     (0, 1)     6x9     0.6     0.02\n"
            "1      3.weight   3 x (8x8)      tensorion  slices     (0,)       8x8     0.5657  0.02\n"
            "2      0.bias     12             adamw      order < 3                             0.003\n"
            "2      1.weight   8x1x3x3        adamw      its group                             0.003\n"
            "2      1.bias     8              adamw      order < 3                             0.003\n"
            "2      2.weight   4x8x1x1        adamw      its group                             0.003\n"
            "2      3.bias     24             adamw      order < 3                             0.003\n");
  const auto plain = param_groups(*model, ParamGroupRules().decay_vectors(false));
  ASSERT_EQ(plain.size(), 4U);
  EXPECT_EQ(options_of(plain[0]).split_sizes(), std::vector<int64_t>{4});
  EXPECT_EQ(options_of(plain[1]).algorithm(), "tensorion");
  EXPECT_EQ(options_of(plain[2]).weight_decay() + options_of(plain[3]).weight_decay(), 0.01);
}

TEST(ParamGroups, ThrowsForBadRules) {
  const auto model = network();
  const auto expect_refused = [&](const ParamGroupRules& rules, const std::string& part) {
    expect_error<c10::ValueError>([&] { param_groups(*model, rules); }, part);
  };
  expect_refused(ParamGroupRules().to_fallback({"head"}), "'head' in to_fallback matches no parameter");
  expect_refused(ParamGroupRules().batch({{"experts", {0}}}), "'experts' in batch matches no parameter");
  expect_refused(ParamGroupRules().split({{"3.weight", {5}}}), "does not fit '3.weight', shape [24, 8]");
}

TEST(ParamGroups, DetectsStateOfEarlierSplit) {
  const auto model = network();
  const auto train = [&](Tensorion& optimizer) {
    for (auto& param : model->parameters()) param.mutable_grad() = gaussian(param.sizes(), 3);
    optimizer.step();
  };
  Tensorion old(param_groups(*model, ParamGroupRules().pointwise(false).depthwise(true).split({{"0", {1}}})));
  train(old);
  std::stringstream file;
  torch::save(old, file);
  Tensorion current(model->parameters());
  expect_error<c10::ValueError>([&] { torch::load(current, file); },
                                "The kernels of size 1 are: parameter 2 of group 0, shape [4, 8, 1, 1]");
}

}  // namespace
}  // namespace tensorion
