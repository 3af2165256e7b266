#include "lab/experiments/laplace_run.h"

#include "lab/experiments/laplace_record.h"
#include "lab/experiments/laplace_study.h"
#include "lab/experiments/laplace_summary.h"
#include "lab/experiments/laplace_sweep.h"
#include "lab/experiments/laplacian.h"
#include "tests/lab/temporary_folder.h"
#include "tests/support.h"

namespace tensorion::lab {
namespace {

using tensorion::testing::expect_error;

TEST(LaplaceProblem, RoundTripsThroughText) {
  const auto problem = LaplaceProblem::parse("12x64x5");
  EXPECT_EQ(problem.d, 12);
  EXPECT_EQ(problem.n, 64);
  EXPECT_EQ(problem.rank, 5);
  EXPECT_EQ(problem.str(), "12x64x5");
  expect_error<c10::ValueError>([] { LaplaceProblem::parse("12x64"); }, "such as 10x32x8, got '12x64'");
  expect_error<c10::ValueError>([] { LaplaceProblem::parse("12x0x5"); },
                                "points of a problem must be at least 1");
}

TEST(MinimizeQuotient, EveryOptimizerFindsTheEigenvalue) {
  const LaplaceProblem problem{3, 6, 2};
  LaplaceOptions options;
  options.schedule.name = "cosine";
  const std::map<std::string, double> lrs{{"tensorion", 0.05}, {"online", 0.05},       {"muon", 0.05},
                                          {"sgd", 2e-3},       {"sgd-momentum", 1e-3}, {"adam", 0.05}};
  ASSERT_EQ(lrs.size(), laplace_optimizers().size());
  for (const auto& [optimizer, lr] : lrs) {
    const auto run = minimize_quotient(problem, {optimizer, 400, lr, 0}, options);
    EXPECT_FALSE(run.diverged);
    EXPECT_EQ(run.points.size(), 51U);
    EXPECT_EQ(run.points.back().step, 400);
    EXPECT_GT(run.points.front().error, 1) << optimizer;
    EXPECT_LT(run.final_error(), 1e-3) << optimizer;
    // The error of the quotient is of second order in the error of the vector.
    EXPECT_GT(run.points.back().residual, run.final_error()) << optimizer;
    EXPECT_LT(run.points.back().residual, run.points.front().residual) << optimizer;
  }
}

// Compares with one step of plain SGD that is computed directly.
TEST(MinimizeQuotient, MatchesStepsOfTheOptimizer) {
  const auto run = minimize_quotient({3, 5, 2}, {"sgd", 1, 1e-3, 4}, {});
  auto train = random_train(3, 5, 2, 4, at::kDouble);
  for (auto& core : train) core.requires_grad_(true);
  rayleigh_quotient(train).backward();
  TensorTrain after;
  for (auto& core : train) after.push_back(core.detach() - 1e-3 * core.grad());
  const double expected = rayleigh_quotient(after).item<double>();
  ASSERT_EQ(run.points.size(), 2U);
  EXPECT_NEAR(run.points[1].quotient, expected, 1e-12 * expected);
}

TEST(SweepRates, SelectsTheSmallestGeometricMean) {
  std::vector<LaplaceRun> runs;
  const SweepGrid grid{.lrs = {1e-5, 1e-3, 1e300}, .seeds = {0, 1}};
  const auto sweep = sweep_rates("sgd", 10, grid, [&](const LaplaceRunKey& key) {
    runs.push_back(minimize_quotient({3, 5, 2}, key, {}));
    return runs.back();
  });
  ASSERT_EQ(runs.size(), 6U);
  ASSERT_EQ(sweep.rates.size(), 3U);
  EXPECT_NEAR(sweep.rates[1].error, std::sqrt(runs[2].final_error() * runs[3].final_error()),
              1e-12 * sweep.rates[1].error);
  EXPECT_EQ(sweep.rates[1].points.back().seconds,
            std::min(runs[2].points.back().seconds, runs[3].points.back().seconds));
  EXPECT_EQ(sweep.rates[2].diverged, 2);
  EXPECT_TRUE(std::isinf(sweep.rates[2].error));
  ASSERT_NE(sweep.best(), nullptr);
  EXPECT_EQ(sweep.best()->lr, 1e-3);
  EXPECT_FALSE(sweep.is_best_at_edge());
  EXPECT_EQ(laplace_table({3, 5, 2}, {sweep}).rows[0][2], "0.001");
  const LaplaceSweep diverged{.optimizer = "sgd", .steps = 10, .rates = {sweep.rates[2]}};
  EXPECT_EQ(laplace_table({3, 5, 2}, {diverged}).rows[0][2], "diverged");
  EXPECT_FALSE(diverged.is_best_at_edge());
}

// Returns a run whose error is smallest at the learning rate that is closest to `best` on a logarithmic
// scale.
LaplaceRun run_with_optimum(const LaplaceRunKey& key, double best) {
  const double error = 1e-3 * (1 + std::abs(std::log(key.lr / best)));
  return {.key = key, .points = {{.step = key.steps, .error = error, .residual = error, .seconds = 1}}};
}

TEST(SweepRates, ExtendsTheGridWhileTheBestIsAtItsEdge) {
  const auto sweep = [](double optimum, int64_t extensions) {
    const SweepGrid grid{.lrs = {0.01, 0.1, 1}, .seeds = {0}, .extensions = extensions};
    return sweep_rates("sgd", 10, grid,
                       [&](const LaplaceRunKey& key) { return run_with_optimum(key, optimum); });
  };
  EXPECT_TRUE(sweep(0.1, 3).extended.empty());
  EXPECT_TRUE(sweep(1e-3, 0).extended.empty());
  EXPECT_TRUE(sweep(1e-3, 0).is_best_at_edge());

  const auto below = sweep(1e-3, 5);  // 1e-3 is the best rate; 1e-4 is tried to confirm this
  ASSERT_EQ(below.extended.size(), 2U);
  EXPECT_NEAR(below.extended[0], 1e-3, 1e-15);
  EXPECT_NEAR(below.extended[1], 1e-4, 1e-16);
  EXPECT_EQ(below.best()->lr, below.extended[0]);
  EXPECT_FALSE(below.is_best_at_edge());
  EXPECT_EQ(below.rates.front().lr, below.extended[1]);
  EXPECT_EQ(laplace_table({3, 5, 2}, {below}).rows[0].back(), "beyond the grid");

  const auto above = sweep(1e6, 2);
  EXPECT_EQ(above.extended.size(), 2U);
  EXPECT_TRUE(above.is_best_at_edge());
  EXPECT_EQ(laplace_table({3, 5, 2}, {above}).rows[0].back(), "at the edge");
}

TEST(LaplaceRecord, KeepsCompleteRuns) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  const LaplaceProblem problem{3, 5, 2};
  const auto good = minimize_quotient(problem, {"sgd", 4, 1e-3, 1}, {});
  const auto longer = minimize_quotient(problem, {"sgd", 8, 1e-3, 1}, {});
  const auto bad = minimize_quotient(problem, {"sgd", 4, 1e300, 0}, {});
  ASSERT_TRUE(bad.diverged);
  {
    LaplaceRecord record(file);
    record.add(problem, good);
    record.add(problem, longer);
    record.add(problem, bad);
    record.add(problem, minimize_quotient(problem, {"adam", 4, 0.1, 0}, {}));
  }
  // The program was killed in the middle of the last line.
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 20);
  const LaplaceRecord record(file);
  for (const auto* run : {&good, &longer}) {
    const auto* found = record.find(problem, run->key);
    ASSERT_NE(found, nullptr);
    ASSERT_EQ(found->points.size(), run->points.size());
    EXPECT_EQ(found->final_error(), run->final_error());
    EXPECT_EQ(found->points.back().seconds, run->points.back().seconds);
  }
  ASSERT_NE(record.find(problem, bad.key), nullptr);
  EXPECT_TRUE(record.find(problem, bad.key)->diverged);
  EXPECT_EQ(record.find(problem, {"adam", 4, 0.1, 0}), nullptr);
  EXPECT_EQ(record.find(problem, {"sgd", 4, 1e-3, 0}), nullptr);
  EXPECT_EQ(record.find({3, 5, 3}, good.key), nullptr);
}

TEST(LaplaceCosts, CountsTheRunsThatTheRecordLacks) {
  const testing::TemporaryFolder folder;
  const LaplaceProblem problem{3, 5, 2};
  const LaplaceStudy study{.problems = {problem},
                           .optimizers = {"sgd", "muon"},
                           .budgets = {10, 30},
                           .grid = {.lrs = {1e-3, 1e-2}, .seeds = {0}},
                           .options = {}};
  EXPECT_EQ(study.runs(), 8U);
  const LaplaceCosts costs(study);
  const double sgd = costs.seconds_per_step(problem, "sgd"), muon = costs.seconds_per_step(problem, "muon");
  EXPECT_GT(sgd, 0);
  LaplaceRecord record(folder.path() / "metrics.jsonl");
  EXPECT_NEAR(costs.seconds(study, record), 80 * (sgd + muon), 1e-9 * (sgd + muon));
  record.add(problem, minimize_quotient(problem, {"sgd", 30, 1e-3, 0}, {}));
  EXPECT_NEAR(costs.seconds(study, record), 50 * sgd + 80 * muon, 1e-9 * (sgd + muon));
}

}  // namespace
}  // namespace tensorion::lab
