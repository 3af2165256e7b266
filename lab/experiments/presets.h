// The paper's training experiments as flag values, with the results that the paper reports. Some additional
// presets compare unfoldings and are not in the paper.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/flags/optimizer_flags.h"

namespace tensorion::lab {

// Means and standard deviations. Accuracies are in percent.
struct PaperResult {
  double accuracy;
  double accuracy_std;
  double loss;
  double loss_std;
};

struct PresetMethod {
  Method method;
  std::string title;  // the name in the paper's table
  std::optional<PaperResult> paper = {};

  // Returns the value of an option, or an empty string if the preset does not set it.
  std::string option(const std::string& name) const;
};

struct Preset {
  std::string name;
  std::string title = {};  // what is compared, if not just optimizers
  FlagValues flags;        // flags for all scales
  FlagValues paper;
  FlagValues small;
  FlagValues smoke;
  std::vector<PresetMethod> methods;
  std::vector<std::string> notes = {};  // printed below the table
  // How the paper computes polar factors: newton_schulz or svd. Empty if the preset is not an experiment of
  // the paper.
  std::string polar = "newton_schulz";
  bool is_finetuning = false;             // true if the paper fine-tunes timm's weights
  bool specifies_weight_decay = true;     // false if the paper does not specify it; then ours is a choice
  std::vector<std::string> choices = {};  // choices that the paper leaves open, one sentence each

  // Returns null if the preset has no such method.
  const PresetMethod* find_method(const std::string& name) const;
  // Returns the value of a flag in the paper's experiment, or an empty string if the preset does not set it.
  std::string paper_flag(const std::string& flag) const;
  const FlagValues& scale(const std::string& name) const;
  // Returns the method with the options for the scale. At the scale "paper", polar factors are computed as in
  // the paper.
  Method method(const PresetMethod& method, const std::string& scale) const;
};

// Returns cifar10, cifar100, tiny-imagenet, imagenette-vit, imagenette-swin, unfoldings and
// unfoldings-tiny-imagenet.
const std::vector<Preset>& comparison_presets();

// Compares every unfolding of a kernel, the strategies that choose among them, and two baselines.
const Preset& ablation_preset();

}  // namespace tensorion::lab
