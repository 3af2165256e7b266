#include <fstream>
#include <nlohmann/json.hpp>

#include "lab/training/schedule.h"
#include "tests/support.h"

namespace tensorion::lab {
namespace {

using nlohmann::json;
using tensorion::testing::expect_error;

// Torch updates the learning rate recursively; our schedules are closed formulas.
constexpr double kRounding = 1e-14;

json golden_schedules() { return json::parse(std::ifstream(TENSORION_GOLDEN_DIR "/schedules.json")); }

// The parameter is the index of the schedule in the file.
class GoldenSchedule : public ::testing::TestWithParam<size_t> {};

TEST_P(GoldenSchedule, MatchesTorch) {
  const auto golden = golden_schedules().at(GetParam());
  ScheduleOptions options;
  options.name = golden["schedule"];
  options.milestones = golden.value("milestones", std::vector<int64_t>());
  options.gamma = golden.value("gamma", options.gamma);
  options.cycle_momentum = golden.value("cycle_momentum", options.cycle_momentum);
  const auto schedule = make_schedule(options, golden["epochs"], golden["steps_per_epoch"]);
  for (size_t step = 0; step < golden["lr"].size(); ++step) {
    SCOPED_TRACE(options.name + " " + std::to_string(step));
    const auto at = static_cast<int64_t>(step);
    EXPECT_NEAR(schedule.lr(at), golden["lr"][step].get<double>(), kRounding);
    const double momentum = schedule.momentum ? schedule.momentum(at) : 0.9;
    EXPECT_NEAR(momentum, golden["momentum"][step].get<double>(), kRounding);
    EXPECT_NEAR(momentum, golden["beta1"][step].get<double>(), kRounding);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenSchedule, ::testing::Range(size_t{0}, golden_schedules().size()));

TEST(Schedule, RejectsInvalidOptions) {
  const auto refuse = [](const ScheduleOptions& options, int64_t epochs, const std::string& part) {
    expect_error<c10::ValueError>([&] { make_schedule(options, epochs, 1); }, part);
  };
  refuse({.name = "linear"}, 1, "must be one of constant, multistep, cosine, onecycle, got linear");
  refuse({}, 0, "got 0 epochs");
  refuse({.gamma = 0}, 1, "gamma must be finite and positive, got 0");
  refuse({.milestones = {0}}, 1, "milestones must be at least 1, got 0");
}

}  // namespace
}  // namespace tensorion::lab
