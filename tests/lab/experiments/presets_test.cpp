// Tests that the presets agree with the tables of the paper, which are copied here.
#include "lab/experiments/presets.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

namespace tensorion::lab {
namespace {

// Tables "hyperparameters" and "main". The columns are method, schedule, learning rate, weight decay,
// accuracy and its deviation, loss and its deviation. A result is "-" if the paper does not report it.
const std::map<std::string, std::string> kTables{
    {"cifar10",
     "SGD-M   multistep 0.075 0.0005 94.1 0.13 0.25 0.02\n"
     "AdamW   multistep 0.0001 0.0001 93.7 0.3 0.44 0.02\n"
     "T-SGD   onecycle 0.001 0.0001 95.3 0.1 0.21 0.01\n"
     "T-AdamW onecycle 0.075 0.0005 94.34 0.3 0.59 0.08\n"},
    {"cifar100",
     "SGD-M   multistep 0.05 0.0005 78.2 0.2 0.89 0.13\n"
     "AdamW   multistep 0.00025 0.0005 74.2 0.1 1.33 0.1\n"
     "T-SGD   onecycle 0.0075 0.0005 79.1 0.1 0.98 0.09\n"
     "T-AdamW onecycle 0.00005 0.0005 73.8 0.2 4.89 0.11\n"},
    {"tiny-imagenet",
     "SGD-M   onecycle 0.01 0.0005 61.01 0.02 1.79 0.06\n"
     "AdamW   onecycle 0.0005 0.0001 57.4 0.1 1.33 0.05\n"
     "T-SGD   onecycle 0.075 0.0005 62.7 0.1 1.65 0.06\n"},
    {"imagenette-vit",
     "SGD-M   cosine 0.005 0.0005 -\n"
     "AdamW   cosine 0.0001 0.0005 -\n"
     "T-SGD   cosine 0.0005 0.0005 -\n"
     "T-AdamW cosine 0.0001 0.0005 -\n"},
    {"imagenette-swin",
     "SGD-M   cosine 0.005 0.0005 -\n"
     "AdamW   cosine 0.0001 0.0005 -\n"
     "T-SGD   cosine 0.0005 0.0005 -\n"
     "T-AdamW cosine 0.0001 0.0005 -\n"},
    // Tables "tau-ablation-epoch25" and "tau-ablation-lr". The paper does not specify the weight decay.
    {"ablation",
     "{1}     constant 0.01 0.0005 90.67 0.32 0.424 0.026\n"
     "{2}     constant 0.001 0.0005 90.62 0.44 0.404 0.024\n"
     "{3}     constant 0.001 0.0005 87.40 1.00 0.485 0.051\n"
     "{4}     constant 0.005 0.0005 88.05 0.69 0.423 0.028\n"
     "{1,2}   constant 0.005 0.0005 88.83 0.39 0.430 0.022\n"
     "{1,3}   constant 0.001 0.0005 90.30 0.51 0.426 0.031\n"
     "{1,4}   constant 0.005 0.0005 90.77 0.45 0.432 0.038\n"
     "tau^opt constant 0.01 0.0005 90.44 0.36 0.441 0.024\n"
     "online_tau constant 0.005 0.0005 91.10 0.39 0.416 0.026\n"
     "SGD-M   constant 0.05 0.0005 86.10 1.82 0.527 0.095\n"
     "AdamW   constant 0.0005 0.0005 86.04 1.05 0.507 0.041\n"},
};

// The settings of each experiment according to the text of the paper.
const std::map<std::string, std::map<std::string, std::string>> kRuns{
    {"cifar10", {{"--dataset", "cifar10"}, {"--model", "resnet18"}, {"--epochs", "200"}}},
    // The milestones and gamma are those of mmpretrain's configs/_base_/schedules for CIFAR-100, which the
    // paper cites.
    {"cifar100",
     {{"--dataset", "cifar100"},
      {"--model", "resnet34"},
      {"--epochs", "250"},
      {"--milestones", "60,120,160"},
      {"--gamma", "0.2"}}},
    {"tiny-imagenet", {{"--dataset", "tiny-imagenet"}, {"--model", "resnet50"}, {"--epochs", "200"}}},
    {"imagenette-vit", {{"--dataset", "imagenette"}, {"--model", "vit_base_patch16_224"}, {"--epochs", "5"}}},
    {"imagenette-swin",
     {{"--dataset", "imagenette"}, {"--model", "swin_base_patch4_window7_224"}, {"--epochs", "5"}}},
    {"ablation",
     {{"--dataset", "cifar10"},
      {"--model", "resnet18"},
      {"--epochs", "25"},
      {"--seeds", "0,1,2,3,4,5,6,7,8,9"}}},
};

// Returns the presets that are experiments of the paper.
std::vector<Preset> all_presets() {
  auto presets = comparison_presets();
  std::erase_if(presets, [](const Preset& preset) { return preset.polar.empty(); });
  presets.push_back(ablation_preset());
  return presets;
}

std::map<std::string, std::string> as_map(const FlagValues& values) { return {values.begin(), values.end()}; }

class PresetOf : public ::testing::TestWithParam<Preset> {};

TEST_P(PresetOf, HasTheMethodsOfThePapersTables) {
  const auto& preset = GetParam();
  std::istringstream table(kTables.at(preset.name));
  size_t row = 0;
  for (std::string line; std::getline(table, line); ++row) {
    SCOPED_TRACE(line);
    ASSERT_LT(row, preset.methods.size());
    const auto& [method, title, paper] = preset.methods[row];
    std::istringstream words(line);
    std::string name, schedule, accuracy;
    double lr = 0, decay = 0;
    words >> name >> schedule >> lr >> decay >> accuracy;
    EXPECT_EQ(title, name == "online_tau" ? "online tau" : name);
    const auto values = as_map(method.options);
    EXPECT_EQ(values.at("schedule"), schedule);
    EXPECT_EQ(std::stod(values.at("lr")), lr);
    EXPECT_EQ(std::stod(values.at("weight_decay")), decay);
    ASSERT_EQ(paper.has_value(), accuracy != "-");
    if (!paper) continue;
    double accuracy_std = 0, loss = 0, loss_std = 0;
    words >> accuracy_std >> loss >> loss_std;
    EXPECT_EQ(paper->accuracy, std::stod(accuracy));
    EXPECT_EQ(paper->accuracy_std, accuracy_std);
    EXPECT_EQ(paper->loss, loss);
    EXPECT_EQ(paper->loss_std, loss_std);
  }
  EXPECT_EQ(row, preset.methods.size());
}

TEST_P(PresetOf, HasThePapersSettingsAtThePapersScale) {
  const auto& preset = GetParam();
  auto values = as_map(preset.scale("paper"));
  values.merge(as_map(preset.flags));
  for (const auto& [flag, value] : kRuns.at(preset.name)) EXPECT_EQ(values.at(flag), value) << flag;
  // The full data set and the full model are used.
  for (const auto* flag : {"--limit-train", "--limit-test", "--width", "--depths"})
    EXPECT_FALSE(values.contains(flag)) << flag;
}

// The paper uses Newton-Schulz, and the SVD in the ablation.
TEST_P(PresetOf, UsesThePapersPolarMethodAtThePapersScale) {
  const auto& preset = GetParam();
  for (const auto& each : preset.methods) {
    SCOPED_TRACE(each.method.name);
    const auto paper = as_map(preset.method(each, "paper").options);
    const auto small = as_map(preset.method(each, "small").options);
    if (each.method.optimizer != "tensorion") {
      EXPECT_FALSE(paper.contains("polar"));
    } else if (preset.name == "ablation") {
      EXPECT_EQ(paper.at("polar"), "svd");
      EXPECT_EQ(small.at("polar"), "svd");
    } else {
      EXPECT_EQ(paper.at("polar"), "newton_schulz");
      EXPECT_EQ(paper.at("ns_coefficients"), "muon");
      EXPECT_EQ(paper.at("ns_steps"), "5");
      EXPECT_FALSE(small.contains("polar"));
    }
  }
}

TEST_P(PresetOf, TestsOnTheWholeTestSetExceptInSmokeTests) {
  EXPECT_FALSE(as_map(GetParam().scale("small")).contains("--limit-test"));
}

TEST_P(PresetOf, IsSmallerAtSmallerScales) {
  const auto& preset = GetParam();
  const auto epochs = [&](const std::string& scale) {
    return std::stoi(as_map(preset.scale(scale)).at("--epochs"));
  };
  EXPECT_LE(epochs("smoke"), epochs("small"));
  EXPECT_LE(epochs("small"), epochs("paper"));
  for (const auto* scale : {"small", "smoke"}) {
    const auto values = as_map(preset.scale(scale));
    EXPECT_TRUE(values.contains("--limit-train")) << scale;
    EXPECT_FALSE(values.contains("--dataset")) << scale;
    EXPECT_FALSE(values.contains("--lr")) << scale;
  }
}

INSTANTIATE_TEST_SUITE_P(All, PresetOf, ::testing::ValuesIn(all_presets()), [](const auto& info) {
  auto name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace tensorion::lab
