// The paper's training experiments as values of flags, with the results that the paper reports, and
// comparisons of unfoldings that the paper does not have.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/flags/optimizer_flags.h"

namespace tensorion::lab {

// Means and standard deviations, accuracies in percent.
struct PaperResult {
  double accuracy;
  double accuracy_std;
  double loss;
  double loss_std;
};

struct PresetMethod {
  Method method;
  std::string title;  // as the paper's table has it
  std::optional<PaperResult> paper = {};
};

struct Preset {
  std::string name;
  std::string title = {};  // what is compared, if that is more than optimizers
  FlagValues flags;        // of every scale
  FlagValues paper;
  FlagValues small;
  FlagValues smoke;
  std::vector<PresetMethod> methods;
  std::vector<std::string> notes = {};  // below the table
  // How the paper computes polar factors, newton_schulz or svd; empty if this is not an experiment of the
  // paper.
  std::string polar = "newton_schulz";
  bool is_finetuning = false;             // of timm's weights
  std::vector<std::string> choices = {};  // what the paper leaves open, one sentence each

  const FlagValues& scale(const std::string& name) const;
  // The method with the options that go with the scale: at "paper", polar factors are computed as in the
  // paper.
  Method method(const PresetMethod& method, const std::string& scale) const;
};

// The value of a flag in the paper's experiment; empty if the preset has none.
std::string flag_of(const Preset& preset, const std::string& flag);

// cifar10, cifar100, tiny-imagenet, imagenette-vit, imagenette-swin, unfoldings, unfoldings-tiny-imagenet.
const std::vector<Preset>& comparison_presets();

// Every unfolding of a kernel, the choices among them, and two baselines.
const Preset& ablation_preset();

}  // namespace tensorion::lab
