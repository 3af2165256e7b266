// The training loop: any classifier, any torch::optim::Optimizer.
//
// A run is a function of the weights, the optimizer's state, torch's generator
// and the TrainingState it starts from: with those of any step put back, it
// goes on to the same weights and metrics, bit for bit, on as many threads.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "lab/data/data_loader.h"
#include "lab/models/classifier.h"
#include "lab/training/metrics.h"
#include "lab/training/schedule.h"

namespace tensorion::lab {

struct TrainerOptions {
  int64_t epochs = 10;
  ScheduleOptions schedule = {};
  double label_smoothing = 0;
  // At a loss or gradient that is not finite: "error" throws Diverged, "skip" leaves out the step
  // (and the loss from the mean), "ignore" goes on.
  std::string nonfinite = "error";
};

// The loss or a gradient was not finite, and nonfinite = "error". The parameters are as before the step.
class Diverged : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Where the training is.
struct TrainingState {
  int64_t epoch = 0;  // that of the next batch, counted from 0
  int64_t batch = 0;  // the next one
  // Of the epoch so far.
  double loss_sum = 0;
  int64_t samples = 0;
  double seconds = 0;
  double optimizer_seconds = 0;
  double data_seconds = 0;  // waiting for batches
  // Of the whole run.
  int64_t skipped_steps = 0;
  std::vector<EpochMetrics> history = {};  // of the epochs that are over
};

class Trainer;

// What a trainer tells while it runs. What is thrown ends the run.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  // The state's batch is the next one, or past the last.
  virtual void after_step(const Trainer&) {}
  virtual void before_test(const Trainer&) {}
  // The state is at the start of the next epoch.
  virtual void after_epoch(const Trainer&) {}
};

class Trainer {
 public:
  // The optimizer's param groups must have their base learning rates. All must outlive the trainer.
  Trainer(Classifier& model, torch::optim::Optimizer& optimizer, const DataLoader& train,
          const DataLoader& test, TrainerOptions options);

  // From the state to the end.
  void run(TrainingObserver& observer);

  const TrainerOptions& options() const { return options_; }
  const TrainingState& state() const { return state_; }
  void set_state(TrainingState state);

  const Classifier& model() const { return model_; }
  const torch::optim::Optimizer& optimizer() const { return optimizer_; }
  int64_t batches() const { return train_.batches(); }  // of an epoch
  int64_t samples() const { return train_.samples(); }

 private:
  void train_epoch(TrainingObserver& observer);
  void train_step(const Batch& batch);
  // Names what is not finite after the backward pass; empty if everything is finite.
  std::string nonfinite_part(double loss) const;
  void finish_epoch();
  int64_t step() const { return state_.epoch * batches() + state_.batch; }

  Classifier& model_;
  torch::optim::Optimizer& optimizer_;
  const DataLoader& train_;
  const DataLoader& test_;
  TrainerOptions options_;
  Scheduler scheduler_;
  TrainingState state_;
};

}  // namespace tensorion::lab
