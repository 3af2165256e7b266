#include "lab/training/schedule.h"

#include <torch/optim/sgd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tensorion/optimizer.h"
#include "tests/support.h"

namespace tensorion::lab {
namespace {

using nlohmann::json;
using tensorion::testing::expect_error;
using tensorion::testing::gaussian;

// Torch multiplies step by step, here it is a formula.
constexpr double kRounding = 1e-14;

const TensorionOptions& options_of(const torch::optim::Optimizer& optimizer, size_t group) {
  return static_cast<const TensorionOptions&>(optimizer.param_groups()[group].options());
}

json golden_schedules() { return json::parse(std::ifstream(TENSORION_GOLDEN_DIR "/schedules.json")); }

// By their number in the file.
class GoldenSchedule : public ::testing::TestWithParam<size_t> {};

TEST_P(GoldenSchedule, ValuesAreTorchs) {
  const auto golden = golden_schedules().at(GetParam());
  ScheduleOptions options;
  options.name = golden["schedule"];
  options.milestones = golden.value("milestones", std::vector<int64_t>());
  options.gamma = golden.value("gamma", options.gamma);
  options.cycle_momentum = golden.value("cycle_momentum", options.cycle_momentum);
  const Schedule schedule(options, golden["epochs"], golden["steps_per_epoch"]);
  for (size_t step = 0; step < golden["lr"].size(); ++step) {
    SCOPED_TRACE(options.name + " " + std::to_string(step));
    const auto at = static_cast<int64_t>(step);
    EXPECT_NEAR(schedule.lr(at), golden["lr"][step].get<double>(), kRounding);
    EXPECT_NEAR(schedule.momentum(at).value_or(0.9), golden["momentum"][step].get<double>(), kRounding);
    EXPECT_NEAR(schedule.momentum(at).value_or(0.9), golden["beta1"][step].get<double>(), kRounding);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenSchedule, ::testing::Range(size_t{0}, golden_schedules().size()));

TEST(Schedule, DrivesEachGroupFromItsOwnLearningRate) {
  Tensorion optimizer({gaussian({2, 3, 4}, 1), gaussian({5}, 2)}, TensorionOptions(0.4).fallback_lr(0.01));
  Scheduler scheduler(Schedule({.name = "onecycle"}, 10, 10), optimizer);
  scheduler.prepare(0);
  EXPECT_NEAR(options_of(optimizer, 0).lr(), 0.4 / 25, 1e-12);
  EXPECT_NEAR(options_of(optimizer, 1).lr(), 0.01 / 25, 1e-12);
  EXPECT_NEAR(options_of(optimizer, 0).momentum(), 0.95, 1e-12);
  scheduler.prepare(29);
  EXPECT_NEAR(options_of(optimizer, 0).lr(), 0.4, 1e-12);
  EXPECT_NEAR(options_of(optimizer, 1).lr(), 0.01, 1e-12);
  EXPECT_NEAR(options_of(optimizer, 0).momentum(), 0.85, 1e-12);
  // AdamW's beta1, and not its beta2 or the momentum that it does not use.
  EXPECT_EQ(options_of(optimizer, 1).fallback_betas(), TensorionOptions::Betas(0.85, 0.999));
  EXPECT_NEAR(options_of(optimizer, 1).momentum(), 0.95, 1e-12);
  scheduler.prepare(99);
  EXPECT_NEAR(options_of(optimizer, 1).lr(), 0.01 / 250000, 1e-20);
}

TEST(Schedule, DrivesAnyOptimizer) {
  torch::optim::SGD optimizer(std::vector<at::Tensor>{gaussian({3}, 1)}, torch::optim::SGDOptions(0.5));
  Scheduler(Schedule({.name = "cosine"}, 1, 2), optimizer).prepare(1);
  EXPECT_DOUBLE_EQ(optimizer.param_groups()[0].options().get_lr(), 0.25);
  expect_error<c10::TypeError>([&] { Scheduler(Schedule({.name = "onecycle"}, 1, 2), optimizer); },
                               "cannot cycle the momentum of this optimizer");
}

TEST(Schedule, BadOptionsAreNamed) {
  const auto refuse = [](const ScheduleOptions& options, int64_t epochs, const std::string& part) {
    expect_error<c10::ValueError>([&] { Schedule(options, epochs, 1); }, part);
  };
  refuse({.name = "linear"}, 1, "must be one of constant, multistep, cosine, onecycle, got linear");
  refuse({}, 0, "got 0 epochs");
  refuse({.gamma = 0}, 1, "gamma must be finite and positive, got 0");
  refuse({.milestones = {0}}, 1, "milestones must be at least 1, got 0");
}

}  // namespace
}  // namespace tensorion::lab
