// Learning rates over a run, with the values of torch.optim.lr_scheduler.
//
//   constant   the base learning rate
//   multistep  times gamma at each milestone                 MultiStepLR, stepped once an epoch
//   cosine     times (1 + cos(pi t / T)) / 2                 CosineAnnealingLR, stepped at every step t of T
//   onecycle   up from 1/25 over the first 30 % of the       OneCycleLR, stepped at every step
//              steps, then down to 1/250000, in cosines;
//              the momentum goes from 0.95 to 0.85 and back
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tensorion::lab {

// constant, multistep, cosine, onecycle.
const std::vector<std::string>& schedule_names();

struct ScheduleOptions {
  std::string name = "cosine";
  std::vector<int64_t> milestones = {};  // in epochs; empty: after a half and three quarters of them
  double gamma = 0.1;
  bool cycle_momentum = true;  // of onecycle
};

class Schedule {
 public:
  Schedule(ScheduleOptions options, int64_t epochs, int64_t steps_per_epoch);

  // The learning rate of step 0, 1, ... as a multiple of the base learning rate.
  double lr(int64_t step) const;
  // The momentum (AdamW: beta1) of the step, if the schedule sets it.
  std::optional<double> momentum(int64_t step) const;

 private:
  // From `start` over `middle` to `end`, in the two phases of onecycle.
  double one_cycle(int64_t step, double start, double middle, double end) const;

  ScheduleOptions options_;
  int64_t steps_per_epoch_;
  int64_t steps_;
};

// Drives an optimizer: every param group from the learning rate it has when the scheduler is made.
class Scheduler {
 public:
  // The optimizer must outlive it.
  Scheduler(Schedule schedule, torch::optim::Optimizer& optimizer);

  // Sets what the step 0, 1, ... is to use.
  void prepare(int64_t step);

 private:
  Schedule schedule_;
  torch::optim::Optimizer& optimizer_;
  std::vector<double> base_lrs_;
};

}  // namespace tensorion::lab
