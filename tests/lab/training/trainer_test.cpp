#include "lab/training/trainer.h"

#include <torch/optim/sgd.h>

#include "lab/training/checkpoint.h"
#include "lab/training/evaluation.h"
#include "lab/training/optimizers.h"
#include "tests/lab/temporary_folder.h"
#include "tests/lab/training/support.h"

namespace tensorion::lab {
namespace {

using tensorion::testing::expect_error;
using testing::TemporaryFolder;
using testing::tiny_loader;
using testing::TinyModel;
using testing::TinyRun;

void expect_same_run(const TinyRun& run, const TinyRun& expected) {
  for (const auto& parameter : run.model.named_parameters()) {
    EXPECT_TRUE(at::equal(parameter.value(), expected.model.named_parameters()[parameter.key()]))
        << parameter.key();
  }
  const auto& history = run.trainer.state().history;
  ASSERT_EQ(history.size(), expected.trainer.state().history.size());
  for (size_t i = 0; i < history.size(); ++i) {
    const auto& other = expected.trainer.state().history[i];
    EXPECT_EQ(history[i].epoch, other.epoch);
    EXPECT_EQ(history[i].lr, other.lr);
    EXPECT_EQ(history[i].train_loss, other.train_loss);
    EXPECT_EQ(history[i].test_loss, other.test_loss);
    EXPECT_EQ(history[i].test_accuracy, other.test_accuracy);
  }
}

// Saves a checkpoint after every step and epoch, each in its own folder.
class SaveAll : public TrainingObserver {
 public:
  explicit SaveAll(TinyRun& run) : run_(run) {}
  void after_step(const Trainer&) override { save(); }
  void after_epoch(const Trainer&) override { save(); }
  std::vector<std::unique_ptr<TemporaryFolder>> folders;

 private:
  void save() {
    const auto& folder = folders.emplace_back(std::make_unique<TemporaryFolder>());
    save_checkpoint(folder->path(), run_.model, run_.optimizer, run_.trainer.state());
  }
  TinyRun& run_;
};

TEST(Trainer, DecreasesTheLoss) {
  TinyRun run("tensorion", {.epochs = 30});
  TrainingObserver quiet;
  const auto before = evaluate(run.model, run.test);
  run.trainer.run(quiet);
  const auto after = evaluate(run.model, run.test);
  EXPECT_LT(after.loss, 0.5 * before.loss);
  EXPECT_GT(after.accuracy, 0.9);
  const auto& last = run.trainer.state().history.back();
  EXPECT_EQ(last.epoch, 30);
  EXPECT_EQ(last.test_loss, after.loss);
  EXPECT_EQ(last.test_accuracy, after.accuracy);
  EXPECT_GT(last.seconds, last.optimizer_seconds);
  EXPECT_GT(last.optimizer_seconds, 0);
  EXPECT_GT(last.seconds, last.optimizer_seconds + last.data_seconds);
  EXPECT_GT(last.data_seconds, 0);
}

TEST(Trainer, AcceptsAnyOptimizer) {
  TinyModel model;
  const auto train = tiny_loader(45, 12, true);
  const auto test = tiny_loader(30, 20, false);
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.1));
  Trainer trainer(model, optimizer, train, test, {.epochs = 4});
  TrainingObserver quiet;
  trainer.run(quiet);
  EXPECT_LT(trainer.state().history.back().train_loss, trainer.state().history.front().train_loss);
}

TEST(Evaluation, AveragesOverAllSamples) {
  TinyModel model;
  const auto by_batches = evaluate(model, tiny_loader(30, 7, false));
  const auto loader = tiny_loader(30, 30, false);
  const auto batch = *loader.epoch(0).next();
  model.eval();
  const auto logits = model.forward(batch.images).detach().to(at::kDouble);
  const auto picked = logits.log_softmax(1).gather(1, batch.labels.unsqueeze(1));
  EXPECT_NEAR(by_batches.loss, -picked.mean().item<double>(), 1e-6);
  EXPECT_EQ(by_batches.accuracy, (logits.argmax(1) == batch.labels).to(at::kDouble).mean().item<double>());
}

class TrainerOfEachOptimizer : public ::testing::TestWithParam<std::string> {};

TEST_P(TrainerOfEachOptimizer, ResumesBitForBitFromEveryCheckpoint) {
  const TrainerOptions options{.epochs = 2, .schedule = {.name = "onecycle"}, .label_smoothing = 0.1};
  TinyRun whole(GetParam(), options);
  SaveAll checkpoints(whole);
  whole.trainer.run(checkpoints);
  ASSERT_EQ(checkpoints.folders.size(), 2U * (4 + 1));
  for (size_t i = 0; i < checkpoints.folders.size(); ++i) {
    SCOPED_TRACE(i);
    TinyRun resumed(GetParam(), options);
    at::manual_seed(99);
    const auto& folder = checkpoints.folders[i]->path();
    resumed.trainer.set_state(
        load_checkpoint(folder, resumed.model, resumed.optimizer, testing::no_warning).value());
    TrainingObserver quiet;
    resumed.trainer.run(quiet);
    expect_same_run(resumed, whole);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TrainerOfEachOptimizer, ::testing::ValuesIn(optimizer_names()));

// The gradient of the kernel is not finite in the third step only.
struct NonfiniteRun : TinyRun {
  explicit NonfiniteRun(const std::string& nonfinite)
      : TinyRun("sgd", {.epochs = 1, .nonfinite = nonfinite}) {
    model.named_parameters()["conv.weight"].register_hook(
        [this](at::Tensor gradient) { return trainer.state().batch == 2 ? gradient * INFINITY : gradient; });
  }
  bool kernel_is_finite() { return at::isfinite(model.named_parameters()["conv.weight"]).all().item<bool>(); }
  TrainingObserver quiet;
};

TEST(Trainer, ReportsNonfiniteGradient) {
  NonfiniteRun run("error");
  expect_error<Diverged>([&] { run.trainer.run(run.quiet); },
                         "the gradient of conv.weight is not finite in epoch 1, step 3 of 4");
  EXPECT_TRUE(run.kernel_is_finite());
}

TEST(Trainer, SkipsNonfiniteGradient) {
  NonfiniteRun run("skip");
  run.trainer.run(run.quiet);
  EXPECT_TRUE(run.kernel_is_finite());
  EXPECT_EQ(run.trainer.state().skipped_steps, 1);
}

TEST(Trainer, IgnoresNonfiniteGradient) {
  NonfiniteRun run("ignore");
  run.trainer.run(run.quiet);
  EXPECT_FALSE(run.kernel_is_finite());
  EXPECT_EQ(run.trainer.state().skipped_steps, 0);
}

TEST(Trainer, ReportsNonfiniteLoss) {
  TinyRun run("sgd", {.epochs = 1});
  const c10::NoGradGuard no_grad;
  run.model.named_parameters()["fc.bias"].fill_(NAN);
  TrainingObserver quiet;
  const at::AutoGradMode gradients(true);
  expect_error<Diverged>(
      [&] { run.trainer.run(quiet); },
      "the loss is nan and the gradient of conv.weight is not finite in epoch 1, step 1 of 4");
}

TEST(Trainer, RejectsInvalidOptionsAndStates) {
  expect_error<c10::ValueError>([] { TinyRun("sgd", {.label_smoothing = 1}); },
                                "label_smoothing must be in [0, 1), got 1");
  expect_error<c10::ValueError>([] { TinyRun("sgd", {.nonfinite = "warn"}); },
                                "nonfinite must be error, skip or ignore");
  TinyRun run;
  expect_error<c10::ValueError>([&] { run.trainer.set_state({.epoch = 4}); },
                                "does not match a run of 3 epochs of 4 batches: got epoch 4");
  expect_error<c10::ValueError>([&] { run.trainer.set_state({.batch = 5}); }, "batch 5");
  expect_error<c10::ValueError>([&] { run.trainer.set_state({.epoch = 1}); }, "metrics of 0 epochs");
}

}  // namespace
}  // namespace tensorion::lab
