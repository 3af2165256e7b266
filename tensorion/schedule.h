// Learning rate schedules for any torch::optim::Optimizer. Their values are those of
// torch.optim.lr_scheduler.
//
//   tensorion::Scheduler scheduler(optimizer, tensorion::onecycle(total_steps));
//   for (...) {
//     ...
//     optimizer.step();
//     scheduler.step();
//   }
//
// A schedule multiplies the learning rate that each param group has when the scheduler is constructed. For
// onecycle, this is the maximum (max_lr in Python). After its last step a schedule keeps its last value.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tensorion {

// Functions of the step, which is 0-based.
struct Schedule {
  std::function<double(int64_t step)> lr;        // factor of the base learning rate
  std::function<double(int64_t step)> momentum;  // the momentum, or beta1 of Adam; not changed if empty
};

// Keeps the base learning rate.
Schedule constant();

// Multiplies the learning rate by gamma at each milestone, as MultiStepLR does. Milestones are numbers of
// steps. Throws if gamma is not finite and positive, or if a milestone is below 1.
Schedule multistep(std::vector<int64_t> milestones, double gamma = 0.1);

// The factor grows linearly from `warmup_start` to 1 in the first `warmup_steps` steps, as in LinearLR. In
// the other T steps it is final + (1 - final) (1 + cos(pi t / T)) / 2, as in CosineAnnealingLR with an
// eta_min of final * lr.
struct CosineOptions {
  int64_t warmup_steps = 0;
  double warmup_start = 1.0 / 3;
  double final = 0;
};
// Throws if total_steps is below 1 or an option is out of range.
Schedule cosine(int64_t total_steps, const CosineOptions& options = {});

// The schedule of OneCycleLR. The factor grows from 1 / div_factor to 1 in the first fraction `pct_start` of
// the steps, and then decreases to 1 / (div_factor * final_div_factor). With three_phase, it first returns to
// 1 / div_factor in as many steps as it has grown. The momentum moves in the opposite direction.
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
// Throws if total_steps is below 1 or an option is out of range.
Schedule onecycle(int64_t total_steps, const OneCycleOptions& options = {});

// Sets the learning rate and the momentum of an optimizer. The optimizer must outlive the scheduler.
class Scheduler {
 public:
  // Reads the base learning rates from the param groups and prepares step 0. A schedule that sets the
  // momentum works with Tensorion, SGD, RMSprop, Adam and AdamW; the constructor throws for other optimizers.
  Scheduler(torch::optim::Optimizer& optimizer, Schedule schedule);

  // Prepares the next step. Call it after each step of the optimizer, as in Python.
  void step() { prepare(step_ + 1); }

  // Prepares the given step. To resume training, load the optimizer and then call this once. Throws if the
  // step is negative or if param groups were added since the scheduler was constructed.
  void prepare(int64_t step);

  // Returns the step that is prepared.
  int64_t current_step() const { return step_; }

 private:
  torch::optim::Optimizer& optimizer_;
  Schedule schedule_;
  std::vector<double> base_lrs_;
  int64_t step_ = 0;
};

}  // namespace tensorion
