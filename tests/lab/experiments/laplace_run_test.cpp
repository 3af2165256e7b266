#include "lab/experiments/laplace_run.h"

#include "lab/experiments/laplace_record.h"
#include "lab/experiments/laplace_sweep.h"
#include "lab/experiments/laplacian.h"
#include "tests/lab/temporary_folder.h"
#include "tests/support.h"

namespace tensorion::lab {
namespace {

using tensorion::testing::expect_error;

TEST(LaplaceProblem, IsReadAndWritten) {
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
  options.steps = 400;
  options.schedule.name = "cosine";
  const std::map<std::string, double> lrs{{"tensorion", 0.05}, {"online", 0.05},       {"muon", 0.05},
                                          {"sgd", 2e-3},       {"sgd-momentum", 1e-3}, {"adam", 0.05}};
  ASSERT_EQ(lrs.size(), laplace_optimizers().size());
  for (const auto& [optimizer, lr] : lrs) {
    const auto run = minimize_quotient(problem, optimizer, lr, 0, options);
    EXPECT_FALSE(run.diverged);
    EXPECT_EQ(run.points.size(), 51U);
    EXPECT_EQ(run.points.back().step, 400);
    EXPECT_GT(run.points.front().error, 1) << optimizer;
    EXPECT_LT(run.final_error(), 1e-3) << optimizer;
    // The error of the quotient is of second order in that of the vector.
    EXPECT_GT(run.points.back().residual, run.final_error()) << optimizer;
    EXPECT_LT(run.points.back().residual, run.points.front().residual) << optimizer;
  }
}

// One step of plain SGD by hand.
TEST(MinimizeQuotient, StepsAreTheOptimizers) {
  LaplaceOptions options;
  options.steps = 1;
  const auto run = minimize_quotient({3, 5, 2}, "sgd", 1e-3, 4, options);
  auto train = random_train(3, 5, 2, 4, at::kDouble);
  for (auto& core : train) core.requires_grad_(true);
  rayleigh_quotient(train).backward();
  TensorTrain after;
  for (auto& core : train) after.push_back(core.detach() - 1e-3 * core.grad());
  const double expected = rayleigh_quotient(after).item<double>();
  ASSERT_EQ(run.points.size(), 2U);
  EXPECT_NEAR(run.points[1].quotient, expected, 1e-12 * expected);
}

TEST(SweepRates, TakesTheRateOfTheSmallestErrorAndGeometricMeans) {
  LaplaceOptions options;
  options.steps = 10;
  std::vector<LaplaceRun> runs;
  const auto sweep = sweep_rates("sgd", {1e-5, 1e-3, 1e300}, {0, 1}, [&](double lr, int64_t seed) {
    runs.push_back(minimize_quotient({3, 5, 2}, "sgd", lr, seed, options));
    return runs.back();
  });
  ASSERT_EQ(runs.size(), 6U);
  ASSERT_EQ(sweep.rates.size(), 3U);
  EXPECT_NEAR(sweep.rates[1].error, std::sqrt(runs[2].final_error() * runs[3].final_error()),
              1e-12 * sweep.rates[1].error);
  EXPECT_EQ(sweep.rates[2].diverged, 2);
  EXPECT_TRUE(std::isinf(sweep.rates[2].error));
  ASSERT_NE(sweep.best(), nullptr);
  EXPECT_EQ(sweep.best()->lr, 1e-3);
  EXPECT_EQ(laplace_table({3, 5, 2}, {sweep}).rows[0][1], "0.001");
  EXPECT_EQ(laplace_table({3, 5, 2}, {{.optimizer = "sgd", .rates = {sweep.rates[2]}}}).rows[0][1],
            "diverged");
}

TEST(LaplaceRecord, KeepsWholeRuns) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  const LaplaceProblem problem{3, 5, 2};
  LaplaceOptions options;
  options.steps = 4;
  const auto good = minimize_quotient(problem, "sgd", 1e-3, 1, options);
  const auto bad = minimize_quotient(problem, "sgd", 1e300, 0, options);
  ASSERT_TRUE(bad.diverged);
  {
    LaplaceRecord record(file, 4);
    record.add(problem, good);
    record.add(problem, bad);
    record.add(problem, minimize_quotient(problem, "adam", 0.1, 0, options));
  }
  // Killed in the middle of the last line.
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 20);
  const LaplaceRecord record(file, 4);
  const auto* found = record.find(problem, "sgd", 1e-3, 1);
  ASSERT_NE(found, nullptr);
  ASSERT_EQ(found->points.size(), good.points.size());
  EXPECT_EQ(found->final_error(), good.final_error());
  EXPECT_EQ(found->points.back().seconds, good.points.back().seconds);
  ASSERT_NE(record.find(problem, "sgd", 1e300, 0), nullptr);
  EXPECT_TRUE(record.find(problem, "sgd", 1e300, 0)->diverged);
  EXPECT_EQ(record.find(problem, "adam", 0.1, 0), nullptr);
  EXPECT_EQ(record.find(problem, "sgd", 1e-3, 0), nullptr);
  EXPECT_EQ(record.find({3, 5, 3}, "sgd", 1e-3, 1), nullptr);
}

}  // namespace
}  // namespace tensorion::lab
