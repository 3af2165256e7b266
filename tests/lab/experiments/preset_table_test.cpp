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
TEST(PresetTable, OmitsPaperResultsForOtherRuns) {
  for (int which = 0; which < 5; ++which) {
    SCOPED_TRACE(which);
    auto config = paper_config();
    if (which == 0) config.dataset = "fashion-mnist";
    if (which == 1) config.model = "resnet34";
    if (which == 2) config.training.epochs = 10;
    if (which == 3) config.width = 0.25;
    if (which == 4) config.data.limit_train = 100;
    EXPECT_EQ(text(config).find("94.10"), std::string::npos);
    EXPECT_TRUE(text(config).starts_with(setup_title(config)));
  }
}

}  // namespace
}  // namespace tensorion::lab
