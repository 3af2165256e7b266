// Learning rate schedules with the values of torch.optim.lr_scheduler, for any torch::optim::Optimizer.
//
//   tensorion::Scheduler scheduler(optimizer, tensorion::onecycle(total_steps));
//   for (...) {
//     ...
//     optimizer.step();
//     scheduler.step();
//   }
//
// A schedule multiplies the learning rate that each param group has when the scheduler is made. For onecycle,
// that is the highest one (max_lr in Python). After its last step a schedule keeps its last value.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tensorion {

// What step 0, 1, ... uses.
struct Schedule {
  std::function<double(int64_t step)> lr;        // as a multiple of the base learning rate
  std::function<double(int64_t step)> momentum;  // the momentum, or beta1 of Adam; empty: left alone
};

// The base learning rate throughout.
Schedule constant();

// Times gamma at each milestone, counted in steps: MultiStepLR.
Schedule multistep(std::vector<int64_t> milestones, double gamma = 0.1);

// For the first `warmup_steps`, up in a straight line from `warmup_start` to 1: LinearLR. Then
// final + (1 - final) (1 + cos(pi t / T)) / 2 over the T other steps: CosineAnnealingLR, with eta_min = final
// * lr.
struct CosineOptions {
  int64_t warmup_steps = 0;
  double warmup_start = 1.0 / 3;
  double final = 0;
};
Schedule cosine(int64_t total_steps, const CosineOptions& options = {});

// OneCycleLR. Up from 1 / div_factor over the first share `pct_start` of the steps, then down to
// 1 / (div_factor * final_div_factor); with three_phase, down to 1 / div_factor first, as fast as it went up.
// The momentum goes the other way.
struct OneCycleOptions {
  double pct_start = 0.3;
  std::string anneal_strategy = "cos";  // or "linear"
  bool cycle_momentum = true;
  double base_momentum = 0.85;
  double max_momentum = 0.95;
  double div_factor = 25;
  double final_div_factor = 1e4;
  bool three_phase = false;
};
Schedule onecycle(int64_t total_steps, const OneCycleOptions& options = {});

// Drives an optimizer. It must outlive the scheduler.
class Scheduler {
 public:
  // Takes the base learning rates from the param groups, and prepares step 0. A schedule that sets the
  // momentum works with Tensorion, SGD, RMSprop, Adam and AdamW.
  Scheduler(torch::optim::Optimizer& optimizer, Schedule schedule);

  // Prepares the next step: call it after each step of the optimizer, as in Python.
  void step() { prepare(step_ + 1); }

  // Prepares step 0, 1, ...; a training that is resumed calls this once, after it has loaded the optimizer.
  void prepare(int64_t step);

  // The step that is prepared.
  int64_t current_step() const { return step_; }

 private:
  torch::optim::Optimizer& optimizer_;
  Schedule schedule_;
  std::vector<double> base_lrs_;
  int64_t step_ = 0;
};

}  // namespace tensorion
