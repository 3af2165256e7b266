// The training loop, for any classifier and any torch::optim::Optimizer.
//
// Training is deterministic for a given number of threads. If the weights, the optimizer's state, torch's
// generators, the trainer's tensors and the TrainingState of any step are restored, training continues to the
// same weights and metrics, bit for bit.
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
  // What to do if the loss or a gradient is not finite: "error" throws Diverged, "skip" skips the step and
  // excludes its loss from the mean, and "ignore" takes the step.
  std::string nonfinite = "error";
  double clip_grad = 0;    // maximum norm of the gradients of all parameters together; 0 means no clipping
  int64_t accumulate = 1;  // number of batches per step; the last step of an epoch may have fewer
  double ema = 0;          // decay of the average of the weights (see weight_average.h); 0 means no average
  int64_t log_steps = 0;   // number of steps between calls of TrainingObserver::step_logged; 0 means no calls
  c10::Device device = at::kCPU;  // of the model
  std::string amp = "off";        // automatic mixed precision: "off", "bf16", or "fp16" with loss scaling
  // If true, losses are summed on the device and read rarely, so that a step need not wait for the one before
  // it. Non-finite losses and gradients are then noticed several steps later, and "skip" is left to the
  // optimizer.
  bool defer_metrics = false;
};

// Thrown if the loss or a gradient is not finite and nonfinite is "error". Unless metrics are deferred, the
// parameters are those before the step.
class Diverged : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The position in the training and the sums for metrics.
struct TrainingState {
  int64_t epoch = 0;  // of the next batch, counted from 0
  int64_t batch = 0;  // the next batch, counted from 0
  // Sums over the current epoch.
  double loss_sum = 0;
  int64_t samples = 0;
  double seconds = 0;
  double optimizer_seconds = 0;
  double data_seconds = 0;  // waiting for batches
  // Sums since the last logged step.
  double logged_loss_sum = 0;
  int64_t logged_samples = 0;
  double logged_seconds = 0;
  // For the whole run.
  int64_t skipped_steps = 0;
  std::vector<EpochMetrics> history = {};  // one entry per finished epoch
};

class Trainer;

// Callbacks of the trainer. An exception from a callback ends the training.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  // Called every `log_steps` steps, before after_step.
  virtual void step_logged(const StepMetrics&) {}
  // state().batch is the next batch, or the number of batches after the last step of an epoch.
  virtual void after_step(const Trainer&) {}
  virtual void before_test(const Trainer&) {}
  virtual void after_test_batch(const Trainer&) {}
  // state() is at the start of the next epoch.
  virtual void after_epoch(const Trainer&) {}
};

class Trainer {
 public:
  // The learning rates in the optimizer's param groups are the base learning rates. All arguments must
  // outlive the trainer.
  Trainer(Classifier& model, torch::optim::Optimizer& optimizer, const DataLoader& train,
          const DataLoader& test, TrainerOptions options);

  // Trains from the current state to the end.
  void run(TrainingObserver& observer);

  const TrainerOptions& options() const { return options_; }
  // Reads deferred metrics from the device, which may throw Diverged.
  const TrainingState& state() const;
  void set_state(TrainingState state);

  // The tensors that a checkpoint must contain in addition to the model, the optimizer and the CPU generator:
  // the averaged weights, the loss scale and the generator of the device.
  NamedTensors tensors() const;
  // Loads all tensors, or throws and changes nothing. Ignores the generator of a different type of device.
  void load_tensors(const NamedTensors& tensors, const std::string& source);

  const Classifier& model() const { return model_; }
  const torch::optim::Optimizer& optimizer() const { return optimizer_; }
  // The averaged weights by name; empty if `ema` is 0.
  NamedTensors average() const;
  int64_t batches() const { return train_.batches(); }  // per epoch
  int64_t samples() const { return train_.samples(); }  // per epoch
  int64_t step() const;                                 // number of optimizer steps so far
  int64_t steps_per_epoch() const;

 private:
  void train_epoch(TrainingObserver& observer);
  void train_step(DataLoader::Epoch& epoch);
  // Accumulates the gradients of the next `count` batches and returns their mean loss.
  at::Tensor backward(DataLoader::Epoch& epoch, int64_t count, int64_t samples);
  // Returns true if the step should be taken.
  bool check_finite(const at::Tensor& loss, double value);
  // Describes what is not finite after the backward pass. Returns an empty string if everything is finite.
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

  // Deferred metrics, which stay on the device until state() is called.
  struct Deferred {
    at::Tensor loss_sum;         // undefined if there is nothing to read
    at::Tensor first_nonfinite;  // the first step with a non-finite loss or gradient, or -1
    int64_t samples = 0;
    int64_t steps = 0;
  };
  mutable Deferred deferred_;
  mutable TrainingState state_;
};

}  // namespace tensorion::lab
