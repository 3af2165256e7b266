#include "lab/training/schedule.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tensorion/optimizer.h"

namespace tensorion::lab {
namespace {

constexpr double kWarmup = 0.3;  // the share of onecycle's first phase
constexpr double kDivFactor = 25;
constexpr double kFinalDivFactor = 1e4;
constexpr double kMaxMomentum = 0.95;
constexpr double kBaseMomentum = 0.85;

// From `start` at share 0 to `end` at share 1.
double cosine(double start, double end, double share) {
  return end + (start - end) / 2 * (1 + std::cos(std::numbers::pi * share));
}

void set_momentum(torch::optim::OptimizerOptions& options, double momentum) {
  auto* own = dynamic_cast<TensorionOptions*>(&options);
  TORCH_CHECK_TYPE(own != nullptr,
                   "[tensorion.schedule] onecycle cannot cycle the momentum of this optimizer: set "
                   "cycle_momentum to false");
  if (own->algorithm() == "adamw") {
    own->fallback_betas({momentum, std::get<1>(own->fallback_betas())});
  } else {
    own->momentum(momentum);
  }
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names{"constant", "multistep", "cosine", "onecycle"};
  return names;
}

Schedule::Schedule(ScheduleOptions options, int64_t epochs, int64_t steps_per_epoch)
    : options_(std::move(options)), steps_per_epoch_(steps_per_epoch), steps_(epochs * steps_per_epoch) {
  const auto& names = schedule_names();
  TORCH_CHECK_VALUE(std::find(names.begin(), names.end(), options_.name) != names.end(),
                    "[tensorion.schedule] the schedule must be one of ", c10::Join(", ", names), ", got ",
                    options_.name);
  TORCH_CHECK_VALUE(epochs >= 1 && steps_per_epoch >= 1,
                    "[tensorion.schedule] expected at least one epoch and one step, got ", epochs,
                    " epochs of ", steps_per_epoch, " steps");
  TORCH_CHECK_VALUE(options_.gamma > 0 && std::isfinite(options_.gamma),
                    "[tensorion.schedule] gamma must be finite and positive, got ", options_.gamma);
  for (const int64_t milestone : options_.milestones) {
    TORCH_CHECK_VALUE(milestone >= 1, "[tensorion.schedule] milestones must be at least 1, got ", milestone);
  }
  if (options_.milestones.empty()) options_.milestones = {(epochs + 1) / 2, (epochs * 3 + 3) / 4};
}

double Schedule::lr(int64_t step) const {
  if (options_.name == "multistep") {
    const auto passed =
        std::count_if(options_.milestones.begin(), options_.milestones.end(),
                      [&](int64_t milestone) { return step / steps_per_epoch_ >= milestone; });
    return std::pow(options_.gamma, static_cast<double>(passed));
  }
  if (options_.name == "cosine") {
    return cosine(1, 0, static_cast<double>(step) / static_cast<double>(steps_));
  }
  if (options_.name == "onecycle") {
    return one_cycle(step, 1 / kDivFactor, 1, 1 / (kDivFactor * kFinalDivFactor));
  }
  return 1;
}

std::optional<double> Schedule::momentum(int64_t step) const {
  if (options_.name != "onecycle" || !options_.cycle_momentum) return std::nullopt;
  return one_cycle(step, kMaxMomentum, kBaseMomentum, kMaxMomentum);
}

double Schedule::one_cycle(int64_t step, double start, double middle, double end) const {
  const auto now = static_cast<double>(step);
  const double top = kWarmup * static_cast<double>(steps_) - 1;
  const double last = static_cast<double>(steps_) - 1;
  // Phases without length are over at once.
  if (now <= top) return cosine(start, middle, top > 0 ? now / top : 1);
  return cosine(middle, end, last > top ? (now - top) / (last - top) : 1);
}

Scheduler::Scheduler(Schedule schedule, torch::optim::Optimizer& optimizer)
    : schedule_(std::move(schedule)), optimizer_(optimizer) {
  for (const auto& group : optimizer.param_groups()) base_lrs_.push_back(group.options().get_lr());
  prepare(0);
}

void Scheduler::prepare(int64_t step) {
  auto& groups = optimizer_.param_groups();
  TORCH_CHECK_VALUE(groups.size() == base_lrs_.size(), "[tensorion.schedule] the optimizer had ",
                    base_lrs_.size(), " param groups when the schedule began, got ", groups.size());
  const double factor = schedule_.lr(step);
  const auto momentum = schedule_.momentum(step);
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].options().set_lr(base_lrs_[i] * factor);
    if (momentum) set_momentum(groups[i].options(), *momentum);
  }
}

}  // namespace tensorion::lab
