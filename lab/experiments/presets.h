// The paper's training experiments as values of flags, with the results that the paper reports.
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

  const FlagValues& scale(const std::string& name) const;
};

// cifar10, cifar100, tiny-imagenet, imagenette-vit, imagenette-swin.
const std::vector<Preset>& comparison_presets();

// Every unfolding of a kernel, the choices among them, and two baselines.
const Preset& ablation_preset();

}  // namespace tensorion::lab
