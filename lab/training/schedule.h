// The schedules of tensorion/schedule.h by name, with epochs.
//
//   constant   the base learning rate
//   multistep  times gamma at each milestone
//   cosine     down to 0 in a cosine over all steps
//   onecycle   up over the first 30 % of the steps, then down; the momentum goes from 0.95 to 0.85 and back
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensorion/schedule.h"

namespace tensorion::lab {

// constant, multistep, cosine, onecycle.
const std::vector<std::string>& schedule_names();

struct ScheduleOptions {
  std::string name = "cosine";
  std::vector<int64_t> milestones = {};  // in epochs; empty: after a half and three quarters of them
  double gamma = 0.1;
  bool cycle_momentum = true;  // of onecycle
};

Schedule make_schedule(const ScheduleOptions& options, int64_t epochs, int64_t steps_per_epoch);

}  // namespace tensorion::lab
