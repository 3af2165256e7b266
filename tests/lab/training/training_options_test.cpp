// Tests of trainer options whose effects are not visible in the output of the program.
#include <ATen/ATen.h>

#include <limits>

#include "lab/text/usage_error.h"
#include "lab/training/device.h"
#include "lab/training/gradients.h"
#include "lab/training/loss_scaler.h"
#include "tests/lab/training/support.h"

namespace tensorion::lab {
namespace {

using tensorion::testing::expect_error;
using testing::kClasses;
using testing::kSide;
using testing::tiny_loader;
using testing::TinyRun;

// A model without random numbers, so that a step depends only on the samples and not on how they are batched.
class LinearModel : public Classifier {
 public:
  LinearModel() {
    at::manual_seed(3);
    fc_ = register_module("fc", torch::nn::Linear(kSide * kSide, kClasses));
  }
  at::Tensor forward(at::Tensor images) override { return fc_->forward(images.flatten(1)); }
  std::string head_name() const override { return "fc"; }
  void reset_head() override { fc_->reset_parameters(); }
  at::Tensor weight() const { return fc_->weight; }

 private:
  torch::nn::Linear fc_{nullptr};
};

TEST(TrainingOptions, AccumulatedBatchesEqualOneLargeBatch) {
  // With 45 samples, the last batch and the last step are smaller.
  const auto train = [](int64_t batch_size, int64_t accumulate) {
    LinearModel model;
    const auto data = tiny_loader(45, batch_size, true);
    const auto test = tiny_loader(30, 20, false);
    Tensorion optimizer(model.parameters(), default_options("sgd"));
    Trainer trainer(model, optimizer, data, test, {.epochs = 3, .accumulate = accumulate});
    TrainingObserver quiet;
    trainer.run(quiet);
    EXPECT_EQ(trainer.step(), 3 * 4);
    return std::make_pair(model.weight().detach().clone(), trainer.state().history.back().train_loss);
  };
  const auto [large, large_loss] = train(12, 1);
  const auto [small, small_loss] = train(4, 3);
  // The tolerance is for sums of a few dozen float32 terms over a dozen steps.
  EXPECT_LT((large - small).abs().max().item<double>(), 1e-5);
  EXPECT_NEAR(large_loss, small_loss, 1e-5);
}

TEST(TrainingOptions, DeferredMetricsEqualImmediateMetrics) {
  TinyRun direct("tensorion", {.epochs = 3, .clip_grad = 0.5});
  TinyRun deferred("tensorion", {.epochs = 3, .clip_grad = 0.5, .defer_metrics = true});
  TrainingObserver quiet;
  at::manual_seed(5);  // for dropout
  direct.trainer.run(quiet);
  at::manual_seed(5);
  deferred.trainer.run(quiet);
  for (const auto& parameter : direct.model.named_parameters()) {
    EXPECT_TRUE(at::equal(parameter.value(), deferred.model.named_parameters()[parameter.key()]))
        << parameter.key();
  }
  for (size_t i = 0; i < 3; ++i) {
    // The same float64 values, summed in a different order.
    EXPECT_NEAR(direct.trainer.state().history[i].train_loss, deferred.trainer.state().history[i].train_loss,
                1e-12);
  }
}

TEST(TrainingOptions, DeferredDivergenceIsDetectedWithinTheEpoch) {
  TinyRun run("sgd", {.epochs = 2, .defer_metrics = true});
  {
    const c10::NoGradGuard no_grad;
    run.model.parameters()[0].fill_(std::numeric_limits<float>::quiet_NaN());
  }
  TrainingObserver quiet;
  expect_error<Diverged>([&] { run.trainer.run(quiet); },
                         "the loss or a gradient is not finite in epoch 1, step 1 of 4");
  EXPECT_TRUE(run.trainer.state().history.empty());
}

TEST(TrainingOptions, LossScalerBacksOffAndGrows) {
  LossScaler scaler(at::kCPU);
  const double initial = scaler.scale();
  std::vector<at::Tensor> gradients{at::full({3}, 2 * initial), at::full({2}, -initial)};
  EXPECT_TRUE(scaler.unscale(gradients));
  EXPECT_TRUE(at::equal(gradients[0], at::full({3}, 2.0f)));
  EXPECT_TRUE(at::equal(gradients[1], at::full({2}, -1.0f)));
  gradients[1][0] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(scaler.unscale(gradients));
  EXPECT_EQ(scaler.scale(), initial / 2);
  gradients = {at::ones({1})};
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(scaler.unscale(gradients));
  // A scaler that is restored halfway grows at the same step.
  LossScaler restored(at::kCPU);
  restored.load_state(scaler.state());
  for (int i = 0; i < 999; ++i) restored.unscale(gradients);
  EXPECT_EQ(restored.scale(), initial / 2);
  restored.unscale(gradients);
  EXPECT_EQ(restored.scale(), initial);
  expect_error<c10::ValueError>([&] { restored.load_state({}); }, "expected the state of the loss scale");
}

TEST(TrainingOptions, RejectsTensorsOfAnotherModel) {
  TinyRun run("sgd", {.epochs = 1, .ema = 0.9, .amp = "fp16"});
  EXPECT_EQ(run.trainer.tensors().size(),
            2);  // only the loss scale: there is no average before the first step
  const auto scale = run.trainer.tensors();
  auto wrong = scale;
  wrong["ema.fc.weight"] = at::ones({1});
  expect_error<c10::ValueError>([&] { run.trainer.load_tensors(wrong, "FILE"); }, "FILE: the average of ");
  EXPECT_TRUE(run.trainer.average().empty());
}

TEST(TrainingOptions, ClippingMatchesTorch) {
  LinearModel model;
  model.forward(at::ones({2, 1, kSide, kSide})).sum().backward();
  auto parts = gradients(model);
  const auto before = get_total_norm(parts);
  double squares = 0;
  for (const auto& part : parts) squares += part.to(at::kDouble).square().sum().item<double>();
  EXPECT_NEAR(before.item<double>(), std::sqrt(squares), 1e-4);
  clip_grads_with_norm_(parts, before, 2 * before.item<double>());
  EXPECT_NEAR(get_total_norm(parts).item<double>(), before.item<double>(), 1e-5);
  clip_grads_with_norm_(parts, before, 0.25);
  EXPECT_NEAR(get_total_norm(parts).item<double>(), 0.25, 1e-5);
}

TEST(Device, RejectsUnknownNames) {
  EXPECT_EQ(resolve_device("cpu"), c10::Device(at::kCPU));
  for (const char* name : {"", "gpu", "meta", "cpu:x"}) {
    SCOPED_TRACE(name);
    expect_error<UsageError>([&] { resolve_device(name); }, "--device must be auto, cpu");
  }
}

}  // namespace
}  // namespace tensorion::lab
