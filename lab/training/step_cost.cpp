#include "lab/training/step_cost.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <map>
#include <memory>

#include "lab/models/state_dict.h"
#include "lab/training/optimizer_state_dict.h"
#include "lab/training/trainer.h"

namespace tensorion::lab {
namespace {

// Counts the bytes of all tensors that are allocated while it is torch's profiler.
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

int64_t bytes_of(const NamedTensors& tensors) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors)
    bytes += tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
  return bytes;
}

std::vector<TensorPlan> make_plans(const torch::nn::Module& model, torch::optim::Optimizer& optimizer) {
  std::map<const void*, const TensorionOptions*> options;
  for (const auto& group : optimizer.param_groups()) {
    const auto* own = static_cast<const TensorionOptions*>(&group.options());
    for (const auto& parameter : group.params()) options[parameter.unsafeGetTensorImpl()] = own;
  }
  std::vector<TensorPlan> plans;
  for (const auto& parameter : model.named_parameters()) {
    const auto& own = *options.at(parameter.value().unsafeGetTensorImpl());
    auto& plan = plans.emplace_back(TensorPlan{
        .name = parameter.key(), .shape = parameter.value().sizes().vec(), .algorithm = own.algorithm()});
    if (plan.algorithm != "tensorion") continue;
    plan.is_online = own.unfolding().str() == "online";
    const auto unfolding = own.unfolding().choose(plan.shape);
    plan.modes = unfolding.modes();
    plan.rows = unfolding.rows();
    plan.cols = unfolding.cols();
  }
  return plans;
}

// Ends a training after its second step.
struct SecondStep : public TrainingObserver {
  struct Reached {};
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
  const auto counter = std::make_shared<MemoryCounter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
  const auto model = make_model(config, data);
  Tensorion optimizer(model->parameters(), config.optimizer_options);
  const auto train = train_loader(config, data);
  auto options = config.training;
  options.nonfinite = "ignore";
  Trainer trainer(*model, optimizer, train, train, options);
  SecondStep observer;
  try {
    trainer.run(observer);
  } catch (const SecondStep::Reached&) {
  }
  StepCost cost{.plans = make_plans(*model, optimizer), .weight_bytes = bytes_of(state_dict(*model))};
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
  return cost;
}

}  // namespace tensorion::lab
