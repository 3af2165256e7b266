#include "tensorion/optimizer.h"

#include <c10/core/InferenceMode.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/serialize.h>

#include <sstream>

#include "tests/optimizer_cases.h"

namespace tensorion {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers
using torch::optim::OptimizerParamGroup;

TEST(Optimizer, SplitsParametersByOrder) {
  auto params = parameters();
  params.push_back(parameter({1, 6, 4}, 9));  // a positional embedding
  params.push_back(parameter({6, 4, 1, 1}, 10));
  params.push_back(parameter({6, 1, 1}, 11));
  const Tensorion optimizer(params, TensorionOptions(0.1).fallback_lr(0.01).fallback_weight_decay(0.5));
  ASSERT_EQ(optimizer.param_groups().size(), 2U);
  const auto& high = options_of(optimizer.param_groups()[0]);
  const auto& low = options_of(optimizer.param_groups()[1]);
  EXPECT_EQ(high.algorithm(), "tensorion");
  EXPECT_EQ(low.algorithm(), "adamw");
  EXPECT_EQ(optimizer.param_groups()[0].params().size(), 2U);
  EXPECT_EQ(optimizer.param_groups()[1].params().size(), 4U);
  EXPECT_EQ(high.lr(), 0.1);
  EXPECT_EQ(low.lr(), 0.01);
  EXPECT_EQ(high.weight_decay(), 0.01);
  EXPECT_EQ(low.weight_decay(), 0.5);
  const Tensorion matrices(params, TensorionOptions(0.1).min_order(2));
  EXPECT_EQ(matrices.param_groups()[0].params().size(), 4U);
}

TEST(Optimizer, MatchesStepFunction) {
  auto params = parameters();
  auto w = params[0].detach().clone(), m = at::zeros_like(w);
  auto options = TensorionOptions(0.02).momentum(0.8).weight_decay(0.2).nesterov(true).unfolding(Modes{0, 3});
  Tensorion optimizer(params, options);
  for (int k = 0; k < 5; ++k) {
    set_gradients(params, 10 * k);
    step({w}, {params[0].grad()}, {m}, options.step_options());
    optimizer.step();
    ASSERT_TRUE(at::equal(params[0].detach(), w)) << k;
  }
}

TEST(Optimizer, FallbackMatchesAdamWAndSgd) {
  auto params = parameters(), twins = parameters();
  Tensorion optimizer(params, TensorionOptions(0.01).weight_decay(0.1));
  torch::optim::AdamW adamw({twins[1], twins[2]}, torch::optim::AdamWOptions(0.01).weight_decay(0.1));
  for (int k = 0; k < 10; ++k) {
    set_gradients(params, 10 * k);
    set_gradients(twins, 10 * k);
    optimizer.step();
    adamw.step();
  }
  expect_close(params[1].detach(), twins[1].detach(), 1e-6);
  expect_close(params[2].detach(), twins[2].detach(), 1e-6);

  auto sgd_params = parameters();
  auto w = sgd_params[1].detach().clone().to(at::kDouble);
  at::Tensor buffer = at::zeros_like(w);
  Tensorion sgd(sgd_params, TensorionOptions(0.01).weight_decay(0.1).fallback("sgd").fallback_momentum(0.7));
  for (int k = 0; k < 10; ++k) {
    set_gradients(sgd_params, 10 * k);
    sgd.step();
    buffer = 0.7 * buffer + sgd_params[1].grad().to(at::kDouble) + 0.1 * w;
    w = w - 0.01 * buffer;
  }
  expect_close(sgd_params[1].detach(), w, 1e-6);
}

TEST(Optimizer, SingletonModesDoNotChangeTheTrajectory) {
  auto matrix = parameter({6, 9}, 1);
  auto tensor = matrix.detach().reshape({1, 6, 9}).clone().set_requires_grad(true);
  Tensorion a({matrix}, TensorionOptions(0.01).min_order(2)),
      b({tensor}, TensorionOptions(0.01).min_order(2));
  for (int k = 0; k < 20; ++k) {
    matrix.mutable_grad() = gaussian({6, 9}, k);
    tensor.mutable_grad() = matrix.grad().reshape({1, 6, 9});
    a.step();
    b.step();
    ASSERT_TRUE(at::equal(matrix.detach().reshape({1, 6, 9}), tensor.detach())) << k;
  }
}

TEST(Optimizer, ParametersWithoutGradientAreNotChanged) {
  auto params = parameters();
  set_gradients(params, 5);
  params[0].mutable_grad() = at::Tensor();
  params[2].mutable_grad() = at::Tensor();
  const auto before = copies(params);
  Tensorion optimizer(params, TensorionOptions(0.1).weight_decay(0.5));
  optimizer.step();
  EXPECT_TRUE(at::equal(params[0].detach(), before[0]));
  EXPECT_FALSE(at::equal(params[1].detach(), before[1]));
  EXPECT_TRUE(at::equal(params[2].detach(), before[2]));
  EXPECT_EQ(optimizer.state().size(), 1U);
}

TEST(Optimizer, NonfiniteGradients) {
  for (const std::string policy : {"error", "skip", "ignore"}) {
    auto params = parameters();
    Tensorion optimizer(params, TensorionOptions(0.1).nonfinite(policy));
    set_gradients(params, 3);
    optimizer.step();
    const auto before = copies(params);
    std::ostringstream saved_before;
    torch::save(optimizer, saved_before);
    params[1].mutable_grad()[2][3] = NAN;  // of the fallback; parameters of Tensorion must not change either
    if (policy == "error") {
      expect_error<c10::ValueError>([&] { optimizer.step(); },
                                    "the gradient of parameter 0 of group 1, shape [5, 7] is not finite");
      expect_unchanged(params, before);
    } else if (policy == "skip") {
      optimizer.step();
      expect_unchanged(params, before);
      EXPECT_EQ(optimizer.skipped_steps(), 1);
      set_gradients(params, 4);
      optimizer.step();
      EXPECT_EQ(optimizer.skipped_steps(), 1);
      EXPECT_FALSE(at::equal(params[1].detach(), before[1]));
    } else {
      optimizer.step();
      EXPECT_TRUE(at::isnan(params[1].detach()).any().item<bool>());
      EXPECT_TRUE(at::isfinite(params[0].detach()).all().item<bool>());
    }
  }
}

TEST(Optimizer, GroupsHaveTheirOwnOptions) {
  auto params = parameters();
  const auto defaults = TensorionOptions(0.1).momentum(0.7).weight_decay(0.2);
  Tensorion optimizer(
      {param_group({params[0]}, TensorionOptions(defaults).lr(0.5)), OptimizerParamGroup({params[1]})},
      defaults);
  ASSERT_EQ(optimizer.param_groups().size(), 2U);
  EXPECT_EQ(options_of(optimizer.param_groups()[0]).lr(), 0.5);
  EXPECT_EQ(options_of(optimizer.param_groups()[0]).momentum(), 0.7);
  EXPECT_EQ(options_of(optimizer.param_groups()[1]).lr(), 0.1);
  optimizer.add_param_group(OptimizerParamGroup({params[2], parameter({2, 3, 4}, 8)}));
  ASSERT_EQ(optimizer.param_groups().size(), 4U);
  EXPECT_EQ(options_of(optimizer.param_groups()[2]).algorithm(), "tensorion");
  EXPECT_EQ(options_of(optimizer.param_groups()[3]).algorithm(), "adamw");
  EXPECT_EQ(options_of(optimizer.param_groups()[3]).weight_decay(), 0.2);
  // The option `algorithm` assigns a matrix to Tensorion.
  Tensorion named({param_group({params[1]}, TensorionOptions(0.1).algorithm("tensorion"))});
  EXPECT_EQ(options_of(named.param_groups()[0]).algorithm(), "tensorion");
}

TEST(Optimizer, SchedulersDriveAllGroups) {
  auto params = parameters();
  Tensorion optimizer(params, TensorionOptions(0.1).fallback_lr(0.01));
  torch::optim::StepLR scheduler(optimizer, 1, 0.5);
  scheduler.step();  // StepLR of libtorch decays from the second call on
  scheduler.step();
  EXPECT_NEAR(options_of(optimizer.param_groups()[0]).lr(), 0.05, 1e-12);
  EXPECT_NEAR(options_of(optimizer.param_groups()[1]).lr(), 0.005, 1e-12);
}

TEST(Optimizer, StepAcceptsOptionsOutOfRange) {
  // Regression: torch's LinearLR ends at -4e-18, and the last step threw.
  auto params = parameters();
  Tensorion optimizer(params);
  set_gradients(params, 1);
  optimizer.step();
  const auto before = copies(params);
  auto& options = static_cast<TensorionOptions&>(optimizer.param_groups()[0].options());
  options.lr(-4e-18).momentum(1.0).weight_decay(-1e-20);
  optimizer.step();
  std::stringstream file;
  torch::save(optimizer, file);
  torch::load(optimizer, file);
  const auto after = copies(params);
  expect_close(after[0], before[0], 1e-7);
  auto& loaded = static_cast<TensorionOptions&>(optimizer.param_groups()[0].options());
  for (const double bad : {double{NAN}, double{INFINITY}}) {
    loaded.lr(bad);
    expect_error<c10::ValueError>([&] { optimizer.step(); }, "lr must be finite, got");
    expect_unchanged(params, after);
  }
}

TEST(Optimizer, AddsNothingIfAGroupIsNotValid) {
  // Regression: the kernel of a group whose other parameter was not valid was added. A second attempt then
  // failed with "share memory".
  auto params = parameters();
  Tensorion optimizer({params[0]}, TensorionOptions(0.1));
  auto kernel = parameter({3, 4, 5}, 8);
  const auto attempt = [&] { optimizer.add_param_group(OptimizerParamGroup({kernel, params[2] * 2})); };
  expect_error<c10::ValueError>(attempt, "got parameter 1 of group 1, shape [8], which is a non-leaf tensor");
  expect_error<c10::ValueError>(attempt, "got parameter 1 of group 1, shape [8], which is a non-leaf tensor");
  EXPECT_EQ(optimizer.param_groups().size(), 1U);
  optimizer.add_param_group(OptimizerParamGroup({kernel, params[2]}));
  EXPECT_EQ(optimizer.param_groups().size(), 3U);
  set_gradients({params[0], params[2], kernel}, 3);
  optimizer.step();
  EXPECT_EQ(optimizer.state().size(), 3U);
}

TEST(Optimizer, ThrowsForInferenceTensorsOutsideInferenceMode) {
  std::vector<at::Tensor> params = parameters();
  {
    const c10::InferenceMode inference;
    params[2] = at::ones({8});
    params[2].mutable_grad() = at::ones({8});
  }
  Tensorion optimizer(params);
  set_gradients({params[0], params[1]}, 1);
  const auto before = copies(params);
  expect_error<c10::ValueError>([&] { optimizer.step(); },
                                "parameter 1 of group 1, shape [8] was made in inference mode");
  expect_unchanged(params, before);
  EXPECT_TRUE(optimizer.state().empty());
  const c10::InferenceMode inference;
  optimizer.step();
  EXPECT_FALSE(at::equal(params[2], before[2]));
}

TEST(Optimizer, ClosureIsEvaluatedWithGradients) {
  auto w = parameter({3, 4, 5}, 1);
  Tensorion optimizer({w}, TensorionOptions(0.01));
  const auto loss = optimizer.step([&] {
    optimizer.zero_grad();
    auto value = w.square().sum();
    value.backward();
    return value;
  });
  EXPECT_NEAR(loss.item<double>(), gaussian({3, 4, 5}, 1).square().sum().item<double>(), 1e-4);
}

TEST(Optimizer, MinimizesAQuadratic) {
  const auto target = gaussian({4, 3, 3, 3}, 7);
  auto w = at::zeros({4, 3, 3, 3}).set_requires_grad(true);
  Tensorion optimizer({w}, TensorionOptions().momentum(0.5).weight_decay(0));
  double loss = 0;
  for (int k = 0; k < 300; ++k) {
    static_cast<TensorionOptions&>(optimizer.param_groups()[0].options()).lr(0.2 * (1 - k / 300.0));
    optimizer.zero_grad();
    auto value = (w - target).square().sum();
    value.backward();
    optimizer.step();
    loss = value.item<double>();
  }
  EXPECT_LT(loss, 1e-2);
}

TEST(Optimizer, ThrowsForBadOptionsAndParameters) {
  const auto expect_refused = [](const TensorionOptions& options, const std::string& part) {
    expect_error<c10::ValueError>([&] { Tensorion(parameters(), options); }, part);
  };
  expect_refused(TensorionOptions(-1.0), "lr must be finite and not negative, got -1");
  expect_refused(TensorionOptions(1.0).momentum(1.0), "momentum must be in [0, 1), got 1");
  expect_refused(TensorionOptions(1.0).weight_decay(-1.0), "weight_decay");
  expect_refused(TensorionOptions(1.0).fallback("lion"), "got 'lion'");
  expect_refused(TensorionOptions(1.0).nonfinite("warn"), "got 'warn'");
  expect_refused(TensorionOptions(1.0).min_order(0), "min_order must be at least 1, got 0");
  expect_refused(TensorionOptions(1.0).fallback_betas({0.9, 1.0}), "fallback_betas must be in [0, 1), got 1");
  expect_refused(TensorionOptions(1.0).fallback_lr(-2.0),
                 "fallback_lr must be finite and not negative, got -2");
  expect_refused(TensorionOptions(1.0).polar("qr"), "got 'qr'");
  expect_refused(TensorionOptions(1.0).fallback(std::nullopt),
                 "parameter 1 of group 0, shape [5, 7] needs a fallback (order < 3), got none");
  expect_refused(TensorionOptions(1.0).unfolding(Modes{4}),
                 "unfolding (4,) does not fit parameter 0 of group 0, shape [6, 4, 3, 3]");
  expect_error<c10::ValueError>([] { Tensorion(std::vector<at::Tensor>{}); }, "at least one parameter");
  expect_error<c10::TypeError>([] { Tensorion({at::zeros({2, 3, 4}, at::kComplexFloat)}); },
                               "got ComplexFloat for parameter 0");
  expect_error<c10::ValueError>([] { Tensorion({at::zeros({1, 3, 4}).expand({2, 3, 4})}); },
                                "share one memory location");
  // Regression: two parameters that share memory were both updated, possibly at the same time.
  const auto whole = gaussian({6, 3, 4}, 1);
  const std::vector<at::Tensor> apart{whole.slice(0, 0, 3), whole.slice(0, 3, 6)};
  Tensorion fitting(apart);
  expect_error<c10::ValueError>(
      [&] { Tensorion({apart[0], whole.slice(0, 2, 4)}); },
      "parameter 0 of group 0, shape [3, 3, 4] and parameter 1 of group 0, shape [2, 3, 4] share memory");
  expect_error<c10::ValueError>([&] { fitting.add_param_group(OptimizerParamGroup({whole.slice(0, 5, 6)})); },
                                "parameter 0 of group 1, shape [1, 3, 4] and the optimizer's parameter 1 of "
                                "group 0, shape [3, 3, 4] share memory");
  EXPECT_EQ(fitting.param_groups().size(), 1U);
  expect_error<c10::ValueError>(
      [&] {
        Tensorion(
            {param_group({at::zeros({})}, TensorionOptions(1.0).algorithm("tensorion").unfolding("online"))});
      },
      "unfolding online does not fit parameter 0 of group 0, shape []");
  auto params = parameters();
  Tensorion optimizer(params);
  params[0].mutable_grad() = at::sparse_coo_tensor(at::zeros({4, 1}, at::kLong), at::ones({1}), {6, 4, 3, 3});
  expect_error<c10::ValueError>([&] { optimizer.step(); },
                                "dense gradient, got Sparse for parameter 0 of group 0");
}

// Meta tensors have no values. Reading a value from them, which would synchronize with a device, throws.
TEST(Optimizer, DeviceStepsDoNotSynchronize) {
  for (const auto* nonfinite : {"skip", "ignore"}) {
    for (const auto* unfolding : {"balanced", "online"}) {
      for (const int64_t interval : {1, 2}) {
        SCOPED_TRACE(c10::str(nonfinite, ", ", unfolding, ", ", interval));
        std::vector<at::Tensor> params;
        for (const auto& param : parameters()) {
          if (param.dim() > 2) params.push_back(at::empty_like(param, at::TensorOptions(at::kMeta)));
        }
        Tensorion optimizer(
            params,
            TensorionOptions(0.1).nonfinite(nonfinite).unfolding(unfolding).online_interval(interval));
        for (int k = 0; k < 3; ++k) {
          for (auto& param : params) param.mutable_grad() = at::empty_like(param);
          EXPECT_NO_THROW(optimizer.step());
        }
      }
    }
  }
}

}  // namespace
}  // namespace tensorion
