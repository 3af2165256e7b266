#include "lab/training/step_cost.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Logging.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <utility>

#include "lab/models/state_dict.h"
#include "lab/text/usage_error.h"
#include "lab/training/device.h"
#include "lab/training/optimizer_state_dict.h"
#include "lab/training/trainer.h"
#include "tensorion/param_groups.h"

namespace tensorion::lab {
namespace {

// Counts the bytes of all tensors that are allocated while this object is installed as torch's memory
// profiler.
class MemoryCounter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    current_ += bytes;
    peak_ = std::max(peak_, current_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t peak() const { return peak_; }

 private:
  int64_t current_ = 0;
  int64_t peak_ = 0;
};

// Suppresses torch's warnings about memory that was allocated in threads of the data loader, which are not
// counted.
class QuietLog {
 public:
  QuietLog() : level_(std::exchange(FLAGS_caffe2_log_level, kErrors)) {}
  ~QuietLog() { FLAGS_caffe2_log_level = level_; }
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;

 private:
  static constexpr int kErrors = 2;
  int level_;
};

int64_t bytes_of(const NamedTensors& tensors) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors)
    bytes += tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
  return bytes;
}

// Measures the time to evaluate one batch.
double time_test_batch(Classifier& model, const RunConfig& config, const DataLoader& test) {
  auto batches = test.epoch(0);
  const auto batch = to_device(batches.next().value(), config.training.device);
  const c10::InferenceMode inference;
  model.eval();
  const Autocast autocast(config.training.device, config.training.amp);
  const auto start = std::chrono::steady_clock::now();
  model.forward(batch.images).sum().item<double>();  // item() waits for the device
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Stops training after the second step.
struct SecondStep : public TrainingObserver {
  struct Reached : std::exception {};
  TrainingState first;
  int64_t count = 0;
  TrainingState second;

  void after_step(const Trainer& trainer) override {
    auto& state = ++count == 1 ? first : second;
    state = trainer.state();
    if (count == 2) throw Reached();
  }
  void after_epoch(const Trainer&) override { throw Reached(); }
};

}  // namespace

StepCost measure_step(const RunConfig& config, const DatasetSplits& data) {
  const QuietLog quiet;
  const auto counter = std::make_shared<MemoryCounter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
  const auto model = make_model(config, data);
  Tensorion optimizer =
      checked_usage([&] { return Tensorion(model->parameters(), config.optimizer_options); });
  StepCost cost{.tensors = describe(optimizer, *model), .weight_bytes = bytes_of(state_dict(*model))};
  const auto train = train_loader(config, data);
  auto options = config.training;
  options.nonfinite = "ignore";
  Trainer trainer(*model, optimizer, train, train, options);
  SecondStep observer;
  try {
    trainer.run(observer);
  } catch (const SecondStep::Reached&) {  // NOLINT(bugprone-empty-catch): this is the end of the run
  }
  for (const auto& parameter : model->parameters()) {
    cost.parameters += parameter.numel();
    cost.gradient_bytes += static_cast<int64_t>(parameter.nbytes());
  }
  cost.optimizer_bytes = bytes_of(optimizer_state_dict(optimizer, *model));
  cost.peak_bytes = counter->peak();
  const bool has_two = observer.count == 2;
  cost.seconds = has_two ? observer.second.seconds - observer.first.seconds : observer.first.seconds;
  cost.optimizer_seconds = has_two ? observer.second.optimizer_seconds - observer.first.optimizer_seconds
                                   : observer.first.optimizer_seconds;
  cost.steps = config.training.epochs * trainer.steps_per_epoch();
  const auto test = test_loader(config, data);
  cost.test_seconds =
      time_test_batch(*model, config, test) * static_cast<double>(config.training.epochs * test.batches());
  return cost;
}

}  // namespace tensorion::lab
