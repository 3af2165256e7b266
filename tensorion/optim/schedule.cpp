#include "tensorion/schedule.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tensorion/optimizer.h"

namespace tensorion {
namespace {

// Interpolate from `start` at fraction 0 to `end` at fraction 1.
double interpolate_cosine(double start, double end, double fraction) {
  return end + (start - end) / 2 * (1 + std::cos(std::numbers::pi * fraction));
}

double interpolate_linear(double start, double end, double fraction) {
  return start + (end - start) * fraction;
}

void check_steps(const char* name, int64_t steps) {
  TORCH_CHECK_VALUE(steps >= 1, "[tensorion.", name, "] total_steps must be at least 1, got ", steps);
}

// A piecewise interpolation. Phase i ends at step ends[i] and goes from points[i] to points[i + 1]. A phase
// of length 0 has its end value.
struct Phases {
  std::vector<double> ends;
  std::vector<double> points;
  double (*interpolate)(double start, double end, double fraction);

  double operator()(int64_t step) const {
    const auto now = static_cast<double>(step);
    double start = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
      if (now <= ends[i]) {
        const double fraction = ends[i] > start ? (now - start) / (ends[i] - start) : 1;
        return interpolate(points[i], points[i + 1], fraction);
      }
      start = ends[i];
    }
    return points.back();
  }
};

// The next two functions return false if the options have another type.
template <typename Options>
bool set_beta1(torch::optim::OptimizerOptions& options, double momentum) {
  auto* own = dynamic_cast<Options*>(&options);
  if (own != nullptr) own->betas({momentum, std::get<1>(own->betas())});
  return own != nullptr;
}

template <typename Options>
bool set_plain_momentum(torch::optim::OptimizerOptions& options, double momentum) {
  auto* own = dynamic_cast<Options*>(&options);
  if (own != nullptr) own->momentum(momentum);
  return own != nullptr;
}

// Sets the momentum, or beta1 of Adam and AdamW.
void set_momentum(torch::optim::OptimizerOptions& options, double momentum) {
  auto* own = dynamic_cast<TensorionOptions*>(&options);
  if (own != nullptr && own->algorithm() == "adamw") {
    own->fallback_betas({momentum, std::get<1>(own->fallback_betas())});
    return;
  }
  const bool known = set_plain_momentum<TensorionOptions>(options, momentum) ||
                     set_plain_momentum<torch::optim::SGDOptions>(options, momentum) ||
                     set_plain_momentum<torch::optim::RMSpropOptions>(options, momentum) ||
                     set_beta1<torch::optim::AdamWOptions>(options, momentum) ||
                     set_beta1<torch::optim::AdamOptions>(options, momentum);
  TORCH_CHECK_TYPE(
      known,
      "[tensorion.schedule] expected an optimizer with a momentum or with betas, got another one; set "
      "cycle_momentum to false");
}

}  // namespace

Schedule constant() {
  return {.lr = [](int64_t) { return 1.0; }, .momentum = nullptr};
}

Schedule multistep(std::vector<int64_t> milestones, double gamma) {
  TORCH_CHECK_VALUE(gamma > 0 && std::isfinite(gamma),
                    "[tensorion.multistep] gamma must be finite and positive, got ", gamma);
  for (const int64_t milestone : milestones) {
    TORCH_CHECK_VALUE(milestone >= 1, "[tensorion.multistep] milestones must be at least 1, got ", milestone);
  }
  const auto lr = [milestones = std::move(milestones), gamma](int64_t step) {
    const auto passed = std::count_if(milestones.begin(), milestones.end(),
                                      [step](int64_t milestone) { return step >= milestone; });
    return std::pow(gamma, static_cast<double>(passed));
  };
  return {.lr = lr, .momentum = nullptr};
}

Schedule cosine(int64_t total_steps, const CosineOptions& options) {
  check_steps("cosine", total_steps);
  TORCH_CHECK_VALUE(options.warmup_steps >= 0 && options.warmup_steps < total_steps,
                    "[tensorion.cosine] warmup_steps must be in [0, ", total_steps, "), got ",
                    options.warmup_steps);
  TORCH_CHECK_VALUE(options.warmup_start >= 0 && options.warmup_start <= 1,
                    "[tensorion.cosine] warmup_start must be in [0, 1], got ", options.warmup_start);
  TORCH_CHECK_VALUE(options.final >= 0 && options.final <= 1,
                    "[tensorion.cosine] final must be in [0, 1], got ", options.final);
  const auto warmup = static_cast<double>(options.warmup_steps);
  const auto total = static_cast<double>(total_steps);
  const auto lr = [=](int64_t step) {
    const double now = std::min(static_cast<double>(step), total);
    if (now < warmup) return interpolate_linear(options.warmup_start, 1, now / warmup);
    return interpolate_cosine(1, options.final, (now - warmup) / (total - warmup));
  };
  return {.lr = lr, .momentum = nullptr};
}

Schedule onecycle(int64_t total_steps, const OneCycleOptions& options) {
  check_steps("onecycle", total_steps);
  TORCH_CHECK_VALUE(options.pct_start >= 0 && options.pct_start <= 1,
                    "[tensorion.onecycle] pct_start must be in [0, 1], got ", options.pct_start);
  TORCH_CHECK_VALUE(options.anneal_strategy == "cos" || options.anneal_strategy == "linear",
                    "[tensorion.onecycle] anneal_strategy must be cos or linear, got ",
                    options.anneal_strategy);
  TORCH_CHECK_VALUE(options.div_factor > 0 && options.final_div_factor > 0,
                    "[tensorion.onecycle] div_factor and final_div_factor must be positive, got ",
                    options.div_factor, " and ", options.final_div_factor);
  const auto steps = static_cast<double>(total_steps);
  const double peak = options.pct_start * steps - 1;
  const double start = 1 / options.div_factor;
  const double last = start / options.final_div_factor;
  const auto interpolate = options.anneal_strategy == "cos" ? interpolate_cosine : interpolate_linear;
  const double high = options.max_momentum;
  const double low = options.base_momentum;

  Schedule schedule;
  if (options.three_phase) {
    const std::vector<double> ends{peak, 2 * options.pct_start * steps - 2, steps - 1};
    schedule.lr = Phases{ends, {start, 1, start, last}, interpolate};
    if (options.cycle_momentum) schedule.momentum = Phases{ends, {high, low, high, high}, interpolate};
  } else {
    const std::vector<double> ends{peak, steps - 1};
    schedule.lr = Phases{ends, {start, 1, last}, interpolate};
    if (options.cycle_momentum) schedule.momentum = Phases{ends, {high, low, high}, interpolate};
  }
  return schedule;
}

Scheduler::Scheduler(torch::optim::Optimizer& optimizer, Schedule schedule)
    : optimizer_(optimizer), schedule_(std::move(schedule)) {
  TORCH_CHECK_VALUE(schedule_.lr, "[tensorion.schedule] expected a schedule with a function lr, got none");
  for (const auto& group : optimizer.param_groups()) base_lrs_.push_back(group.options().get_lr());
  prepare(0);
}

void Scheduler::prepare(int64_t step) {
  auto& groups = optimizer_.param_groups();
  TORCH_CHECK_VALUE(step >= 0, "[tensorion.schedule] the step must not be negative, got ", step);
  TORCH_CHECK_VALUE(groups.size() == base_lrs_.size(), "[tensorion.schedule] expected the ", base_lrs_.size(),
                    " param groups that the scheduler was constructed with, got ", groups.size());
  const double factor = schedule_.lr(step);
  for (size_t i = 0; i < groups.size(); ++i) {
    if (schedule_.momentum) set_momentum(groups[i].options(), schedule_.momentum(step));
    groups[i].options().set_lr(base_lrs_[i] * factor);
  }
  step_ = step;
}

}  // namespace tensorion
