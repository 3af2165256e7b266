#include "lab/training/schedule.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>

namespace tensorion::lab {
namespace {

constexpr double kWarmupStart = 0.01;

Schedule with_warmup(Schedule schedule, int64_t warmup_steps) {
  if (warmup_steps == 0) return schedule;
  schedule.lr = [lr = schedule.lr, warmup_steps](int64_t step) {
    const double share = std::min(1.0, static_cast<double>(step) / static_cast<double>(warmup_steps));
    return lr(step) * (kWarmupStart + (1 - kWarmupStart) * share);
  };
  return schedule;
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names{"constant", "multistep", "cosine", "onecycle"};
  return names;
}

std::vector<int64_t> epochs_of_milestones(const ScheduleOptions& options, int64_t epochs) {
  if (!options.milestones.empty()) return options.milestones;
  return {(epochs + 1) / 2, (epochs * 3 + 3) / 4};
}

Schedule make_schedule(const ScheduleOptions& options, int64_t epochs, int64_t steps_per_epoch) {
  const auto& names = schedule_names();
  TORCH_CHECK_VALUE(std::find(names.begin(), names.end(), options.name) != names.end(),
                    "[tensorion.schedule] schedule must be one of ", c10::Join(", ", names), ", got ",
                    options.name);
  TORCH_CHECK_VALUE(epochs >= 1 && steps_per_epoch >= 1,
                    "[tensorion.schedule] expected at least one epoch and one step, got ", epochs,
                    " epochs of ", steps_per_epoch, " steps");
  auto milestones = epochs_of_milestones(options, epochs);
  for (auto& milestone : milestones) milestone *= steps_per_epoch;
  auto multistep_schedule = multistep(milestones, options.gamma);  // always, so that its options are checked

  const int64_t steps = epochs * steps_per_epoch;
  TORCH_CHECK_VALUE(options.warmup_epochs >= 0 && options.warmup_epochs < static_cast<double>(epochs),
                    "[tensorion.schedule] --warmup-epochs must be at least 0 and less than the ", epochs,
                    " epochs of the run, got ", options.warmup_epochs);
  TORCH_CHECK_VALUE(
      options.warmup_epochs == 0 || options.name != "onecycle",
      "[tensorion.schedule] --warmup-epochs cannot be used with onecycle, which has its own warm-up");
  const int64_t warmup_steps = std::min<int64_t>(
      std::llround(options.warmup_epochs * static_cast<double>(steps_per_epoch)), steps - 1);
  if (options.name == "multistep") return with_warmup(multistep_schedule, warmup_steps);
  if (options.name == "cosine")
    return cosine(steps, {.warmup_steps = warmup_steps, .warmup_start = kWarmupStart});
  if (options.name == "onecycle") return onecycle(steps, {.cycle_momentum = options.cycle_momentum});
  return with_warmup(constant(), warmup_steps);
}

}  // namespace tensorion::lab
