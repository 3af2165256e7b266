#include "lab/training/comparison.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support.h"

namespace tensorion::lab {
namespace {

RunSummary run(const std::string& optimizer, int64_t seed, const std::vector<double>& accuracies) {
  RunSummary summary;
  summary.identity = {optimizer + "-seed" + std::to_string(seed), optimizer, seed};
  for (const double accuracy : accuracies) {
    const auto epoch = static_cast<int64_t>(summary.epochs.size()) + 1;
    summary.epochs.push_back({epoch, 0.1, 1 - accuracy, 2 - accuracy, accuracy, 10, 2.5, 0.5});
  }
  summary.diverged = accuracies.empty();
  return summary;
}

TEST(Comparison, ComputesStatisticsOfFinishedRuns) {
  const std::vector<RunSummary> runs{run("sgd", 0, {0.5, 0.75, 0.625}), run("muon", 0, {0.5}),
                                     run("sgd", 1, {0.25, 0.125}), run("sgd", 2, {})};
  const auto rows = compare(runs);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].optimizer, "sgd");
  EXPECT_EQ(rows[0].runs, 3);
  EXPECT_EQ(rows[0].diverged, 1);
  EXPECT_EQ(rows[0].test_accuracy.mean, 0.375);
  EXPECT_NEAR(rows[0].test_accuracy.std, 0.5 / std::sqrt(2.0), 1e-15);
  EXPECT_EQ(rows[0].best_test_accuracy.mean, 0.5);
  EXPECT_EQ(rows[0].train_loss.mean, 0.625);
  EXPECT_EQ(rows[0].test_loss.mean, 1.625);
  EXPECT_EQ(rows[0].seconds.mean, 25);
  EXPECT_EQ(rows[0].optimizer_seconds.mean, 6.25);
  EXPECT_EQ(rows[1].test_accuracy.count, 1);
  EXPECT_TRUE(std::isnan(rows[1].test_accuracy.std));

  const auto json = to_json(rows, runs);
  EXPECT_EQ(json["optimizers"][0]["test_accuracy"]["mean"], 0.375);
  EXPECT_EQ(nlohmann::json::parse(json.dump())["optimizers"][1]["test_accuracy"]["std"], nullptr);
  EXPECT_EQ(json["runs"][3]["status"], "diverged");
  std::ostringstream table;
  print_comparison(table, rows, 100);
  EXPECT_NE(table.str().find("sgd           3  37.50 +- 35.36      4.84"), std::string::npos) << table.str();
  EXPECT_NE(table.str().find("1 diverged"), std::string::npos);
}

TEST(Comparison, LabelsDistinguishRunsOfOneOptimizer) {
  auto flat = run("tensorion", 0, {0.5}), online = run("tensorion", 0, {0.75});
  flat.identity.label = "flat";
  const auto rows = compare({flat, online});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].optimizer, "flat");
  EXPECT_EQ(rows[1].optimizer, "tensorion");
  EXPECT_EQ(rows[0].test_accuracy.mean, 0.5);
  const auto json = to_json(flat);
  EXPECT_EQ(json["optimizer"], "tensorion");
  EXPECT_EQ(json["label"], "flat");
  const auto again = summary_from_json(nlohmann::json::parse(json.dump()));
  EXPECT_EQ(again.identity.optimizer, "tensorion");
  EXPECT_EQ(again.identity.label, "flat");
}

TEST(Metrics, SummariesRoundTripThroughJson) {
  auto summary = run("sgd", 3, {0.1, 1.0 / 3, 0.2});
  summary.epochs[1].train_loss = NAN;
  summary.skipped_steps = 4;
  summary.parameters = 123;
  summary.threads = 2;
  const auto json = to_json(summary);
  EXPECT_EQ(json["best"]["epoch"], 2);
  EXPECT_EQ(json["final"]["test_accuracy"], 0.2);
  const auto lines = metrics_lines(summary.identity, summary.epochs);
  auto again = summary_from_json(nlohmann::json::parse(json.dump()));
  std::istringstream text(lines);
  for (std::string line; std::getline(text, line);) {
    again.epochs.push_back(epoch_metrics_from_json(nlohmann::json::parse(line)));
  }
  EXPECT_EQ(to_json(again).dump(), json.dump());
  EXPECT_EQ(metrics_lines(again.identity, again.epochs), lines);
  EXPECT_TRUE(std::isnan(again.epochs[1].train_loss));
  EXPECT_EQ(
      lines.substr(0, lines.find('\n')),
      R"({"run":"sgd-seed3","optimizer":"sgd","seed":3,"epoch":1,"lr":0.1,"train_loss":0.9,"test_loss":1.9,)"
      R"("test_accuracy":0.1,"seconds":10.0,"optimizer_seconds":2.5,"data_seconds":0.5})");
}

}  // namespace
}  // namespace tensorion::lab
