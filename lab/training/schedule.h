// The schedules of tensorion/schedule.h by name, with epochs.
//
//   constant   the base learning rate
//   multistep  times gamma at each milestone
//   cosine     down to 0 in a cosine over all steps
//   onecycle   up over the first 30 % of the steps, then down; the momentum goes from 0.95 to 0.85 and back
//
// With warmup_epochs, constant, multistep and cosine begin with a straight line from 1/100 of the base
// learning rate up to it: LinearLR. The cosine then falls over the other steps (SequentialLR); the milestones
// of multistep stay where they are (ChainedScheduler).
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
  double warmup_epochs = 0;    // not of onecycle, which has its own
};

// Those of a multistep schedule, in epochs.
std::vector<int64_t> epochs_of_milestones(const ScheduleOptions& options, int64_t epochs);

Schedule make_schedule(const ScheduleOptions& options, int64_t epochs, int64_t steps_per_epoch);

}  // namespace tensorion::lab
