#include "lab/training/trainer.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <chrono>
#include <cmath>

#include "lab/training/evaluation.h"
#include "tensorion/step.h"

namespace tensorion::lab {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Trainer::Trainer(Classifier& model, torch::optim::Optimizer& optimizer, const DataLoader& train,
                 const DataLoader& test, TrainerOptions options)
    : model_(model),
      optimizer_(optimizer),
      train_(train),
      test_(test),
      options_(std::move(options)),
      scheduler_(optimizer, make_schedule(options_.schedule, options_.epochs, train.batches())) {
  TORCH_CHECK_VALUE(options_.label_smoothing >= 0 && options_.label_smoothing < 1,
                    "[tensorion.train] label_smoothing must be in [0, 1), got ", options_.label_smoothing);
  TORCH_CHECK_VALUE(
      options_.nonfinite == "error" || options_.nonfinite == "skip" || options_.nonfinite == "ignore",
      "[tensorion.train] nonfinite must be error, skip or ignore, got ", options_.nonfinite);
}

void Trainer::set_state(TrainingState state) {
  TORCH_CHECK_VALUE(state.epoch >= 0 && state.epoch <= options_.epochs && state.batch >= 0 &&
                        state.batch <= batches() && state.history.size() == static_cast<size_t>(state.epoch),
                    "[tensorion.train] the state is not one of ", options_.epochs, " epochs of ", batches(),
                    " batches: epoch ", state.epoch, ", batch ", state.batch, ", metrics of ",
                    state.history.size(), " epochs");
  state_ = std::move(state);
}

void Trainer::run(TrainingObserver& observer) {
  while (state_.epoch < options_.epochs) {
    train_epoch(observer);
    observer.before_test(*this);
    finish_epoch();
    observer.after_epoch(*this);
  }
}

void Trainer::train_epoch(TrainingObserver& observer) {
  model_.train();
  auto start = Clock::now();
  auto epoch = train_.epoch(state_.epoch, state_.batch);
  while (const auto batch = epoch.next()) {
    state_.data_seconds += seconds_since(start);
    train_step(*batch);
    ++state_.batch;
    state_.seconds += seconds_since(start);
    observer.after_step(*this);
    start = Clock::now();
  }
}

void Trainer::train_step(const Batch& batch) {
  scheduler_.prepare(step());
  optimizer_.zero_grad();
  const auto loss = at::cross_entropy_loss(model_.forward(batch.images), batch.labels, {},
                                           at::Reduction::Mean, -100, options_.label_smoothing);
  loss.backward();
  const auto value = loss.item<double>();
  if (options_.nonfinite != "ignore") {
    const auto what = nonfinite_part(value);
    if (!what.empty()) {
      if (options_.nonfinite == "error") {
        throw Diverged(
            c10::str(what, " in epoch ", state_.epoch + 1, ", step ", state_.batch + 1, " of ", batches()));
      }
      ++state_.skipped_steps;
      return;
    }
  }
  const auto start = Clock::now();
  optimizer_.step();
  state_.optimizer_seconds += seconds_since(start);
  const int64_t samples = batch.labels.size(0);
  state_.loss_sum += value * static_cast<double>(samples);
  state_.samples += samples;
}

std::string Trainer::nonfinite_part(double loss) const {
  std::string parts;
  if (!std::isfinite(loss)) parts = c10::str("the loss is ", loss);
  for (const auto& parameter : model_.named_parameters()) {
    const auto& gradient = parameter.value().grad();
    if (gradient.defined() && any_nonfinite({gradient}).item<float>() != 0) {
      return parts + (parts.empty() ? "" : " and ") + "the gradient of " + parameter.key() + " is not finite";
    }
  }
  return parts;
}

void Trainer::finish_epoch() {
  // That of the last step, which may have been in another process.
  scheduler_.prepare(step() - 1);
  const auto test = evaluate(model_, test_);
  auto& history = state_.history;
  history.push_back({.epoch = state_.epoch + 1,
                     .lr = optimizer_.param_groups()[0].options().get_lr(),
                     .train_loss = state_.loss_sum / static_cast<double>(state_.samples),
                     .test_loss = test.loss,
                     .test_accuracy = test.accuracy,
                     .seconds = state_.seconds,
                     .optimizer_seconds = state_.optimizer_seconds,
                     .data_seconds = state_.data_seconds});
  state_ = {.epoch = state_.epoch + 1, .skipped_steps = state_.skipped_steps, .history = std::move(history)};
}

}  // namespace tensorion::lab
