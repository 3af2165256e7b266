#include "lab/experiments/preset_table.h"

#include <gtest/gtest.h>

namespace tensorion::lab {
namespace {

// Returns a run with the settings of the paper, as in the preset cifar10.
RunConfig paper_config() {
  RunConfig config;
  config.dataset = "cifar10";
  config.model = "resnet18";
  config.training.epochs = 200;
  return config;
}

std::string text(const RunConfig& config) {
  const auto& preset = comparison_presets().front();
  const std::vector<OptimizerComparison> rows{{.optimizer = "sgd", .runs = 1}};
  const auto table = preset_table(preset, "paper", rows, config, {{"sgd", "0.075"}}, 10000, {});
  EXPECT_EQ(table.header.size(), table.alignment.size());
  EXPECT_EQ(table.header.size(), table.rows.front().size());
  std::string out = table.title;
  for (const auto& cell : table.rows.front()) out += " | " + cell;
  return out;
}

TEST(PresetTable, ShowsPaperResultsForMatchingRuns) {
  EXPECT_NE(text(paper_config()).find("94.10 +- 0.13"), std::string::npos);
  EXPECT_NE(text(paper_config()).find("0.250 +- 0.020"), std::string::npos);
  EXPECT_TRUE(text(paper_config()).starts_with("CIFAR-10, ResNet-18, 200 epochs | sgd"));
}

// Regression test: the results of the paper for "CIFAR-10, ResNet-18" were shown for --dataset fashion-mnist
// --model resnet34.
struct OtherRun {
  const char* name;
  void (*change)(RunConfig& config);
};

class OtherRuns : public ::testing::TestWithParam<OtherRun> {};

TEST_P(OtherRuns, OmitThePaperResults) {
  auto config = paper_config();
  GetParam().change(config);
  EXPECT_EQ(text(config).find("94.10"), std::string::npos);
  EXPECT_TRUE(text(config).starts_with(setup_title(config)));
}

INSTANTIATE_TEST_SUITE_P(
    PresetTable, OtherRuns,
    ::testing::Values(OtherRun{"Dataset", [](RunConfig& config) { config.dataset = "fashion-mnist"; }},
                      OtherRun{"Model", [](RunConfig& config) { config.model = "resnet34"; }},
                      OtherRun{"Epochs", [](RunConfig& config) { config.training.epochs = 10; }},
                      OtherRun{"Width", [](RunConfig& config) { config.width = 0.25; }},
                      OtherRun{"LimitTrain", [](RunConfig& config) { config.data.limit_train = 100; }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tensorion::lab
