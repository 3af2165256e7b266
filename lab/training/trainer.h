// The training loop: any classifier, any torch::optim::Optimizer.
//
// A run is a function of the weights, the optimizer's state, torch's generators, the trainer's tensors and
// the TrainingState it starts from: with those of any step put back, it goes on to the same weights and
// metrics, bit for bit, on as many threads.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lab/data/data_loader.h"
#include "lab/models/classifier.h"
#include "lab/training/loss_scaler.h"
#include "lab/training/metrics.h"
#include "lab/training/schedule.h"
#include "lab/training/step_log.h"
#include "lab/training/weight_average.h"

namespace tensorion::lab {

struct TrainerOptions {
  int64_t epochs = 10;
  ScheduleOptions schedule = {};
  double label_smoothing = 0;
  // At a loss or gradient that is not finite: "error" throws Diverged, "skip" leaves out the step
  // (and the loss from the mean), "ignore" goes on.
  std::string nonfinite = "error";
  double clip_grad = 0;    // scales gradients down to this norm, of all parameters together; 0: does not
  int64_t accumulate = 1;  // batches whose gradients make one step; at the end of an epoch, the rest of them
  double ema = 0;          // decay of the average of the weights (see weight_average.h); 0: none
  int64_t log_steps = 0;   // steps from one TrainingObserver::step_logged to the next; 0: none
  c10::Device device = at::kCPU;  // of the model
  std::string amp = "off";        // "bf16" or "fp16": automatic mixed precision, the latter with loss scaling
  // Losses are summed on the device and read rarely, so that a step does not wait for the one before. A loss
  // or gradient that is not finite is then noticed some steps later, and "skip" is left to the optimizer.
  bool defer_metrics = false;
};

// The loss or a gradient was not finite, and nonfinite = "error". The parameters are as before the step,
// unless metrics are deferred.
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
  // Since the last step that was logged.
  double logged_loss_sum = 0;
  int64_t logged_samples = 0;
  double logged_seconds = 0;
  // Of the whole run.
  int64_t skipped_steps = 0;
  std::vector<EpochMetrics> history = {};  // of the epochs that are over
};

class Trainer;

// What a trainer tells while it runs. What is thrown ends the run.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  // Every `log_steps` steps, before after_step.
  virtual void step_logged(const StepMetrics&) {}
  // The state's batch is the next one, or past the last.
  virtual void after_step(const Trainer&) {}
  virtual void before_test(const Trainer&) {}
  virtual void after_test_batch(const Trainer&) {}
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
  // Reads deferred metrics back, which may throw Diverged.
  const TrainingState& state() const;
  void set_state(TrainingState state);

  // What a checkpoint must keep beside the model, the optimizer and the CPU's generator: the average of the
  // weights, the loss scale, the device's generator.
  NamedTensors tensors() const;
  // All or nothing. A generator of another kind of device is left out.
  void load_tensors(const NamedTensors& tensors, const std::string& source);

  const Classifier& model() const { return model_; }
  const torch::optim::Optimizer& optimizer() const { return optimizer_; }
  // The averaged weights by name; empty without ema.
  NamedTensors average() const;
  int64_t batches() const { return train_.batches(); }  // of an epoch
  int64_t samples() const { return train_.samples(); }
  int64_t step() const;  // steps of the optimizer so far
  int64_t steps_per_epoch() const;

 private:
  void train_epoch(TrainingObserver& observer);
  void train_step(DataLoader::Epoch& epoch);
  // The gradients of the next `count` batches; returns the mean loss.
  at::Tensor backward(DataLoader::Epoch& epoch, int64_t count, int64_t samples);
  // Whether the step is to be taken.
  bool check_finite(const at::Tensor& loss, double value);
  // Names what is not finite after the backward pass; empty if everything is finite.
  std::string nonfinite_part(double loss) const;
  std::string position(int64_t step) const;
  void add_loss(double loss_sum, int64_t samples) const;
  void defer_loss(const at::Tensor& loss, int64_t samples);
  void read_deferred() const;
  StepMetrics log_step();
  void finish_epoch(TrainingObserver& observer);

  Classifier& model_;
  torch::optim::Optimizer& optimizer_;
  const DataLoader& train_;
  const DataLoader& test_;
  TrainerOptions options_;
  Scheduler scheduler_;
  std::optional<WeightAverage> average_;
  std::optional<LossScaler> scaler_;
  at::Tensor gradient_norm_;  // of the last step that clips or is logged

  // Deferred metrics, on the device until state() is called.
  struct Deferred {
    at::Tensor loss_sum;   // undefined: nothing to read
    at::Tensor first_bad;  // the first step that was not finite; -1: none
    int64_t samples = 0;
    int64_t steps = 0;
  };
  mutable Deferred deferred_;
  mutable TrainingState state_;
};

}  // namespace tensorion::lab
