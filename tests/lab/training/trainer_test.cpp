#include "lab/training/trainer.h"

#include <torch/optim/sgd.h>

#include <map>

#include "lab/training/checkpoint.h"
#include "lab/training/evaluation.h"
#include "lab/training/optimizers.h"
#include "tests/lab/temporary_folder.h"
#include "tests/lab/training/support.h"

namespace tensorion::lab {
namespace {

using tensorion::testing::expect_error;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::tiny_loader;
using testing::TinyModel;
using testing::write_bytes;

void no_warning(const std::string& what) { ADD_FAILURE() << what; }

// A trainer with all it needs: 3 epochs of 4 batches.
struct Setup {
  explicit Setup(const std::string& optimizer_name = "tensorion", TrainerOptions options = {.epochs = 3})
      : optimizer(model.parameters(), default_options(optimizer_name)),
        trainer(model, optimizer, train, test, std::move(options)) {}

  void save(const TemporaryFolder& folder) {
    save_checkpoint(folder.path(), model, optimizer, trainer.state());
  }

  TinyModel model;
  Loader train = tiny_loader(45, 12, true);
  Loader test = tiny_loader(30, 20, false);
  Tensorion optimizer;
  Trainer trainer;
};

void expect_same_run(const Setup& run, const Setup& expected) {
  for (const auto& parameter : run.model.named_parameters()) {
    EXPECT_TRUE(at::equal(parameter.value(), expected.model.named_parameters()[parameter.key()])) << parameter.key();
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

// Saves a checkpoint after every step and epoch, each into a folder of its own.
class SaveAll : public TrainingObserver {
 public:
  explicit SaveAll(Setup& setup) : setup_(setup) {}
  void after_step(const Trainer&) override { save(); }
  void after_epoch(const Trainer&) override { save(); }
  std::vector<std::unique_ptr<TemporaryFolder>> folders;

 private:
  void save() { setup_.save(*folders.emplace_back(std::make_unique<TemporaryFolder>())); }
  Setup& setup_;
};

TEST(Trainer, Learns) {
  Setup setup("tensorion", {.epochs = 8});
  TrainingObserver quiet;
  const auto before = evaluate(setup.model, setup.test);
  setup.trainer.run(quiet);
  const auto after = evaluate(setup.model, setup.test);
  EXPECT_LT(after.loss, 0.5 * before.loss);
  EXPECT_GT(after.accuracy, 0.9);
  const auto& last = setup.trainer.state().history.back();
  EXPECT_EQ(last.epoch, 8);
  EXPECT_EQ(last.test_loss, after.loss);
  EXPECT_EQ(last.test_accuracy, after.accuracy);
  EXPECT_GT(last.seconds, last.optimizer_seconds);
  EXPECT_GT(last.optimizer_seconds, 0);
}

TEST(Trainer, TakesAnyOptimizer) {
  TinyModel model;
  const auto train = tiny_loader(45, 12, true);
  const auto test = tiny_loader(30, 20, false);
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.1));
  Trainer trainer(model, optimizer, train, test, {.epochs = 4});
  TrainingObserver quiet;
  trainer.run(quiet);
  EXPECT_LT(trainer.state().history.back().train_loss, trainer.state().history.front().train_loss);
}

TEST(Evaluation, IsTheMeanOverAllSamples) {
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

TEST(Trainer, GoesOnBitForBitFromEveryCheckpoint) {
  for (const auto& name : optimizer_names()) {
    const TrainerOptions options{.epochs = 2, .schedule = {.name = "onecycle"}, .label_smoothing = 0.1};
    Setup whole(name, options);
    SaveAll checkpoints(whole);
    whole.trainer.run(checkpoints);
    ASSERT_EQ(checkpoints.folders.size(), 2U * (4 + 1));
    for (const auto& folder : checkpoints.folders) {
      Setup resumed(name, options);
      at::manual_seed(99);
      resumed.trainer.set_state(
          load_checkpoint(folder->path(), resumed.model, resumed.optimizer, no_warning).value());
      TrainingObserver quiet;
      resumed.trainer.run(quiet);
      expect_same_run(resumed, whole);
    }
  }
}

TEST(Trainer, WhatIsNotFiniteIsNamed) {
  for (const std::string nonfinite : {"error", "skip", "ignore"}) {
    Setup setup("sgd", {.epochs = 1, .nonfinite = nonfinite});
    // The kernel's gradient is not finite in the third step only.
    setup.model.named_parameters()["conv.weight"].register_hook([&](at::Tensor gradient) {
      return setup.trainer.state().batch == 2 ? gradient * INFINITY : gradient;
    });
    TrainingObserver quiet;
    if (nonfinite == "error") {
      expect_error<Diverged>([&] { setup.trainer.run(quiet); },
                             "the gradient of conv.weight is not finite in epoch 1, step 3 of 4");
      continue;
    }
    setup.trainer.run(quiet);
    const bool is_finite = at::isfinite(setup.model.named_parameters()["conv.weight"]).all().item<bool>();
    EXPECT_EQ(is_finite, nonfinite == "skip");
    EXPECT_EQ(setup.trainer.state().skipped_steps, nonfinite == "skip" ? 1 : 0);
  }
  Setup setup("sgd", {.epochs = 1});
  const c10::NoGradGuard no_grad;
  setup.model.named_parameters()["fc.bias"].fill_(NAN);
  TrainingObserver quiet;
  const at::AutoGradMode gradients(true);
  expect_error<Diverged>([&] { setup.trainer.run(quiet); },
                         "the loss is nan and the gradient of conv.weight is not finite in epoch 1, step 1 of 4");
}

TEST(Trainer, BadOptionsAndStatesAreNamed) {
  expect_error<c10::ValueError>([] { Setup("sgd", {.label_smoothing = 1}); }, "label_smoothing must be in [0, 1), got 1");
  expect_error<c10::ValueError>([] { Setup("sgd", {.nonfinite = "warn"}); }, "nonfinite must be error, skip or ignore");
  Setup setup;
  expect_error<c10::ValueError>([&] { setup.trainer.set_state({.epoch = 4}); }, "not one of 3 epochs of 4 batches: epoch 4");
  expect_error<c10::ValueError>([&] { setup.trainer.set_state({.batch = 5}); }, "batch 5");
  expect_error<c10::ValueError>([&] { setup.trainer.set_state({.epoch = 1}); }, "metrics of 0 epochs");
}

TEST(Checkpoint, ThePreviousOneStepsIn) {
  const TemporaryFolder folder;
  Setup setup;
  setup.trainer.set_state({.epoch = 0, .batch = 1});
  setup.save(folder);
  setup.trainer.set_state({.epoch = 0, .batch = 2});
  setup.save(folder);
  const auto load = [&](const std::function<void(const std::string&)>& warn) {
    Setup other;
    return load_checkpoint(folder.path(), other.model, other.optimizer, warn)->batch;
  };
  EXPECT_EQ(load(no_warning), 2);
  // Killed between the two renames of the next one.
  std::filesystem::rename(folder.file("checkpoint.safetensors"), folder.file("x"));
  EXPECT_EQ(load(no_warning), 1);
  // Damaged.
  write_bytes(folder.file("checkpoint.safetensors"), read_bytes(folder.file("x")).substr(0, 1000));
  std::string warning;
  EXPECT_EQ(load([&](const std::string& what) { warning = what; }), 1);
  EXPECT_NE(warning.find("checkpoint.safetensors: "), std::string::npos) << warning;
  EXPECT_NE(warning.find("the checkpoint before it"), std::string::npos) << warning;
  std::filesystem::remove(folder.file("checkpoint.previous.safetensors"));
  expect_error<c10::ValueError>([&] { load(no_warning); }, folder.file("checkpoint.safetensors"));
  std::filesystem::remove(folder.file("checkpoint.safetensors"));
  Setup other;
  EXPECT_FALSE(load_checkpoint(folder.path(), other.model, other.optimizer, no_warning).has_value());
}

TEST(Checkpoint, WhatDoesNotFitIsNamed) {
  const TemporaryFolder folder;
  Setup setup;
  setup.save(folder);
  const auto path = folder.file("checkpoint.safetensors");
  const auto good = read_safetensors(path);
  const auto refuse = [&](const std::string& part) {
    Setup other;
    expect_error<c10::Error>([&] { load_checkpoint(folder.path(), other.model, other.optimizer, no_warning); }, part);
  };
  auto changed = good;
  changed.metadata["format"] = "something else";
  write_safetensors(path, changed.tensors, changed.metadata);
  refuse("expected the format tensorion-checkpoint-1, got 'something else'");
  for (const std::string state : {"", "{", "{}", R"({"epoch": "1"})", "[]"}) {
    changed = good;
    changed.metadata["state"] = state;
    write_safetensors(path, changed.tensors, changed.metadata);
    refuse("the state is not valid");
  }
  changed = good;
  changed.tensors.erase("generator");
  write_safetensors(path, changed.tensors, changed.metadata);
  refuse("the state of the generator is missing");
  changed = good;
  changed.tensors["generator"] = at::zeros({3}, at::kByte);
  write_safetensors(path, changed.tensors, changed.metadata);
  refuse("RNG state is wrong size");
  changed = good;
  changed.tensors.erase("model.fc.bias");
  write_safetensors(path, changed.tensors, changed.metadata);
  refuse("missing: fc.bias");
  changed = good;
  changed.tensors["model.fc.weight"] = at::zeros({5, 4 * 36});
  changed.tensors["model.fc.bias"] = at::zeros({5});
  write_safetensors(path, changed.tensors, changed.metadata);
  refuse("is of another number of classes");
}

}  // namespace
}  // namespace tensorion::lab
