#include "lab/experiments/eigenvalue_run.h"

#include "lab/experiments/laplace_sweep.h"
#include "lab/experiments/laplacian.h"
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
  const auto sweep = sweep_rates({3, 5, 2}, "sgd", {1e-5, 1e-3, 1e300}, {0, 1}, options,
                                 [&](const LaplaceRun& run) { runs.push_back(run); });
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

}  // namespace
}  // namespace tensorion::lab
