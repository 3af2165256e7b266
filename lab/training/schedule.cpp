#include "lab/training/schedule.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

namespace tensorion::lab {

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names{"constant", "multistep", "cosine", "onecycle"};
  return names;
}

Schedule make_schedule(const ScheduleOptions& options, int64_t epochs, int64_t steps_per_epoch) {
  const auto& names = schedule_names();
  TORCH_CHECK_VALUE(std::find(names.begin(), names.end(), options.name) != names.end(),
                    "[tensorion.schedule] the schedule must be one of ", c10::Join(", ", names), ", got ",
                    options.name);
  TORCH_CHECK_VALUE(epochs >= 1 && steps_per_epoch >= 1,
                    "[tensorion.schedule] expected at least one epoch and one step, got ", epochs,
                    " epochs of ", steps_per_epoch, " steps");
  auto milestones = options.milestones;
  if (milestones.empty()) milestones = {(epochs + 1) / 2, (epochs * 3 + 3) / 4};
  for (auto& milestone : milestones) milestone *= steps_per_epoch;
  auto multistep_schedule = multistep(milestones, options.gamma);  // checks its options in any case

  const int64_t steps = epochs * steps_per_epoch;
  if (options.name == "multistep") return multistep_schedule;
  if (options.name == "cosine") return cosine(steps);
  if (options.name == "onecycle") return onecycle(steps, {.cycle_momentum = options.cycle_momentum});
  return constant();
}

}  // namespace tensorion::lab
