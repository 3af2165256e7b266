#include "lab/experiments/deviations.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tensorion::lab {
namespace {

const Preset& cifar10() { return comparison_presets().front(); }

// Returns the runs of the named methods of the preset at the scale of the paper.
std::vector<RunConfig> paper_configs(const std::vector<std::string>& names) {
  RunConfig common;
  common.dataset = "cifar10";
  common.model = "resnet18";
  common.training.epochs = 200;
  std::vector<Method> methods;
  for (const auto& method : cifar10().methods) {
    if (std::count(names.begin(), names.end(), method.method.name) > 0)
      methods.push_back(cifar10().method(method, "paper"));
  }
  OptimizerFlags flags;
  for (const char* option : {"lr",
                             "weight_decay",
                             "momentum",
                             "betas",
                             "eps",
                             "unfolding",
                             "online_interval",
                             "batch_modes",
                             "split_sizes",
                             "polar",
                             "ns_coefficients",
                             "ns_steps",
                             "adjust_lr",
                             "nesterov",
                             "min_order",
                             "fallback",
                             "fallback_lr",
                             "fallback_weight_decay",
                             "fallback_momentum",
                             "schedule"})
    flags[option] = "";
  return make_configs(common, flags, methods);
}

bool has(const std::vector<std::string>& sentences, const std::string& text) {
  return std::any_of(sentences.begin(), sentences.end(),
                     [&](const std::string& sentence) { return sentence.find(text) != std::string::npos; });
}

TEST(Deviations, AtThePapersScaleOnlyTheChoicesAreLeft) {
  const auto found = deviations(cifar10(), paper_configs({"sgd", "tensorion-sgd"}));
  EXPECT_EQ(found,
            (std::vector<std::string>{
                "The batch size, 128, is our choice.",
                "The momentum (by default 0.95 for Tensorion and 0.9 for SGD) is our choice; the paper "
                "names none.",
                "onecycle moves the momentum, and beta1 of AdamW, between 0.95 and 0.85, as torch's "
                "OneCycleLR does.",
                "multistep multiplies the learning rate by 0.1 after the epochs 100, 150.",
                "tensorion-sgd has the learning rate 0.001 for the fallback; the paper names none."}));
}

TEST(Deviations, NameWhatDiffers) {
  auto configs = paper_configs({"tensorion-sgd"});
  auto& config = configs.front();
  config.training.epochs = 8;
  config.width = 0.25;
  config.data.limit_train = 10000;
  config.data.validation = 2000;
  config.optimizer_options.lr(0.1).fallback_lr(0.01).polar("auto");
  const auto found = deviations(cifar10(), configs);
  for (const auto* text :
       {"The number of epochs is 8; the paper has 200.", "The model has 0.25 of the width.",
        "Training uses 10000 samples", "held out for validation",
        "tensorion-sgd has the learning rate 0.1; the paper has 0.001.", "polar=auto",
        "the paper uses Newton-Schulz", "tensorion-sgd has the learning rate 0.01 for the fallback"})
    EXPECT_TRUE(has(found, text)) << text;
}

TEST(Deviations, AreOfThePapersExperimentsOnly) {
  const auto& presets = comparison_presets();
  const auto other = std::find_if(presets.begin(), presets.end(),
                                  [](const Preset& preset) { return preset.name == "unfoldings"; });
  ASSERT_NE(other, presets.end());
  EXPECT_TRUE(deviations(*other, {RunConfig{}}).empty());
}

}  // namespace
}  // namespace tensorion::lab
