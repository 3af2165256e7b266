// Creates the schedules of tensorion/schedule.h by name. Their options are in epochs.
//
//   constant   keeps the base learning rate
//   multistep  multiplies the learning rate by gamma at each milestone
//   cosine     decreases the learning rate to 0 over all steps
//   onecycle   increases the learning rate over the first 30 % of the steps, then decreases it
//
// onecycle also changes the momentum, from 0.95 to 0.85 and back.
//
// If warmup_epochs is positive, constant, multistep and cosine start with a linear warm-up from 1/100 of the
// base learning rate (LinearLR). The cosine then covers the remaining steps (SequentialLR), whereas the
// milestones of multistep do not move (ChainedScheduler).
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
  std::vector<int64_t> milestones = {};  // in epochs; empty means one half and three quarters of the run
  double gamma = 0.1;
  bool cycle_momentum = true;  // for onecycle
  double warmup_epochs = 0;    // must be 0 for onecycle, which has its own warm-up
};

// Returns the milestones of a multistep schedule in epochs.
std::vector<int64_t> epochs_of_milestones(const ScheduleOptions& options, int64_t epochs);

Schedule make_schedule(const ScheduleOptions& options, int64_t epochs, int64_t steps_per_epoch);

}  // namespace tensorion::lab
