#include "lab/experiments/deviations.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tensorion::lab {
namespace {

const Preset& cifar10() { return comparison_presets().front(); }

// Returns the runs of the named methods of the preset at the scale of the paper.
std::vector<RunConfig> paper_configs(const std::vector<std::string>& names,
                                     const Preset& preset = cifar10()) {
  RunConfig common;
  common.dataset = preset.paper_flag("--dataset");
  common.model = preset.paper_flag("--model");
  common.training.epochs = std::stol(preset.paper_flag("--epochs"));
  std::vector<Method> methods;
  for (const auto& name : names) methods.push_back(preset.method(*preset.find_method(name), "paper"));
  return make_configs(common, /*given=*/{}, methods);
}

bool has(const std::vector<std::string>& sentences, const std::string& text) {
  return std::any_of(sentences.begin(), sentences.end(),
                     [&](const std::string& sentence) { return sentence.find(text) != std::string::npos; });
}

TEST(Deviations, AtThePapersScaleOnlyOurChoicesAreListed) {
  const auto found = deviations(cifar10(), paper_configs({"sgd", "tensorion-sgd"}));
  EXPECT_EQ(
      found,
      (std::vector<std::string>{
          "The batch size, 128, is our choice.",
          "The momentum (by default 0.95 for Tensorion and 0.9 for SGD) is our choice; the paper "
          "does not specify it.",
          "onecycle cycles the momentum, and beta1 of AdamW, between 0.95 and 0.85, as torch's "
          "OneCycleLR does.",
          "multistep multiplies the learning rate by 0.1 after epochs 100, 150.",
          "The learning rate of the fallback of tensorion-sgd, 0.001, is our choice; the paper does not "
          "specify it."}));
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
       {"The number of epochs is 8; in the paper it is 200.", "The width of the model is multiplied by 0.25.",
        "Training uses only 10000 samples", "held out for validation",
        "The learning rate of tensorion-sgd is 0.1; in the paper it is 0.001.", "--polar auto",
        "the paper uses Newton-Schulz", "The learning rate of the fallback of tensorion-sgd, 0.01,"})
    EXPECT_TRUE(has(found, text)) << text;
}

TEST(Deviations, WhatAllMethodsShareIsOneSentence) {
  auto configs = paper_configs({"modes-0", "balanced", "online"}, ablation_preset());
  for (auto& config : configs) {
    config.training.schedule.name = "onecycle";
    config.optimizer_options.fallback_lr(0.03);
  }
  configs[0].optimizer_options.lr(0.3);
  configs[2].optimizer_options.lr(0.03);
  const auto found = deviations(ablation_preset(), configs);
  for (const auto* text : {"The schedule of all methods is onecycle; in the paper it is constant.",
                           "The learning rate of the fallback of all methods, 0.03, is our choice; the paper "
                           "does not specify it.",
                           "The learning rate of modes-0 is 0.3; in the paper it is 0.01.",
                           "The learning rate of online is 0.03; in the paper it is 0.005."})
    EXPECT_EQ(std::count(found.begin(), found.end(), text), 1) << text;
  EXPECT_FALSE(has(found, "The learning rate of balanced"));
}

// The table said that the paper's weight decay is 5e-4, and that ours is 5e-4, whatever it was.
TEST(Deviations, AWeightDecayThatThePaperDoesNotSpecifyIsOurChoice) {
  auto configs = paper_configs({"modes-0", "balanced"}, ablation_preset());
  for (auto& config : configs) config.optimizer_options.weight_decay(0.01);
  const auto found = deviations(ablation_preset(), configs);
  EXPECT_TRUE(has(found, "The weight decay of all methods, 0.01, is our choice"));
  EXPECT_FALSE(has(found, "0.0005"));
}

TEST(Deviations, AreEmptyForPresetsThatAreNotInThePaper) {
  const auto& presets = comparison_presets();
  const auto other = std::find_if(presets.begin(), presets.end(),
                                  [](const Preset& preset) { return preset.name == "unfoldings"; });
  ASSERT_NE(other, presets.end());
  EXPECT_TRUE(deviations(*other, {RunConfig{}}).empty());
}

}  // namespace
}  // namespace tensorion::lab
