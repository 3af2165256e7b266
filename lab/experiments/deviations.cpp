#include "lab/experiments/deviations.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lab/text/strings.h"

namespace tensorion::lab {
namespace {

bool is_tensorion(const RunConfig& config) {
  return config.optimizer == "muon" || config.optimizer == "tensorion";
}

void add_data_and_model(std::vector<std::string>& out, const Preset& preset, const RunConfig& config) {
  const auto differs = [&](const std::string& what, const std::string& own, const char* flag) {
    const auto paper = preset.paper_flag(flag);
    if (own != paper) out.push_back(what + " is " + own + "; in the paper it is " + paper + ".");
  };
  differs("The data set", config.dataset, "--dataset");
  differs("The model", config.model, "--model");
  differs("The number of epochs", std::to_string(config.training.epochs), "--epochs");
  if (config.width != 1)
    out.push_back(string_printf("The width of the model is multiplied by %g.", config.width));
  if (!config.depths.empty())
    out.push_back("The stages have " + c10::Join(", ", config.depths) + " blocks, unlike the paper's model.");
  const auto& data = config.data;
  if (data.limit_train)
    out.push_back(string_printf("Training uses only %ld samples of the training set.", *data.limit_train));
  if (data.limit_test)
    out.push_back(string_printf("Testing uses only %ld samples of the test set.", *data.limit_test));
  if (data.validation) out.emplace_back("A part of the training set is held out for validation.");
  if (data.image_size) out.push_back(string_printf("Images are resized to %ld pixels.", *data.image_size));
  if (data.transpose) out.emplace_back("Images are transposed.");
  if (data.flip != "horizontal")
    out.emplace_back(data.flip == "none" ? "Images are not flipped."
                                         : "Images are flipped in both directions.");
}

void add_optimizer(std::vector<std::string>& out, const Preset& preset, const RunConfig& config) {
  const auto& name = method_name(config);
  const auto* method = preset.find_method(name);
  if (method == nullptr) {
    out.push_back("The method " + name + " is not in the paper.");
  } else {
    const auto& options = config.optimizer_options;
    const double lr = to_number(method->option("lr"), "lr");
    if (options.lr() != lr)
      out.push_back(string_printf("The learning rate of %s is %g; in the paper it is %g.", name.c_str(),
                                  options.lr(), lr));
    const double decay = to_number(method->option("weight_decay"), "weight_decay");
    if (options.weight_decay() != decay)
      out.push_back(string_printf("The weight decay of %s is %g; in the paper it is %g.", name.c_str(),
                                  options.weight_decay(), decay));
    const auto schedule = method->option("schedule");
    if (config.training.schedule.name != schedule)
      out.push_back("The schedule of " + name + " is " + config.training.schedule.name +
                    "; in the paper it is " + schedule + ".");
  }
  if (!is_tensorion(config)) return;
  const auto& polar = config.optimizer_options.polar();
  if (polar != preset.polar) {
    out.push_back("Polar factors of " + name + " are computed with --polar " + polar +
                  (polar == "auto" ? ", which is the rational filter on a CPU" : "") + "; the paper uses " +
                  (preset.polar == "svd" ? "the SVD." : "Newton-Schulz (--polar newton_schulz)."));
  }
}

// Adds the choices that the paper leaves open. They depend on the options that all methods share.
void add_choices(std::vector<std::string>& out, const Preset& preset, const std::vector<RunConfig>& configs) {
  const auto any = [&](const auto& is_so) { return std::any_of(configs.begin(), configs.end(), is_so); };
  const auto has_schedule = [&](const std::string& name) {
    return any([&](const RunConfig& config) { return config.training.schedule.name == name; });
  };
  out.push_back(string_printf("The batch size, %ld, is our choice.", configs.front().batch_size));
  if (any([](const RunConfig& config) { return config.optimizer != "adamw"; })) {
    out.emplace_back(
        "The momentum (by default 0.95 for Tensorion and 0.9 for SGD) is our choice; the paper does not "
        "specify "
        "it.");
  }
  if (has_schedule("onecycle") && configs.front().training.schedule.cycle_momentum) {
    out.emplace_back(
        "onecycle cycles the momentum, and beta1 of AdamW, between 0.95 and 0.85, as torch's OneCycleLR "
        "does.");
  }
  if (has_schedule("multistep")) {
    const auto& training = configs.front().training;
    out.push_back(
        string_printf("multistep multiplies the learning rate by %g after epochs ", training.schedule.gamma) +
        c10::Join(", ", epochs_of_milestones(training.schedule, training.epochs)) + ".");
  }
  for (const auto& config : configs) {
    if (!is_tensorion(config)) continue;
    const auto& options = config.optimizer_options;
    const double fallback_lr = options.fallback_lr().value_or(options.lr());
    out.push_back(string_printf(
        "The learning rate of the fallback of %s, %g, is our choice; the paper does not specify it.",
        method_name(config).c_str(), fallback_lr));
  }
  out.insert(out.end(), preset.choices.begin(), preset.choices.end());
}

}  // namespace

std::vector<std::string> deviations(const Preset& preset, const std::vector<RunConfig>& configs) {
  if (preset.polar.empty()) return {};
  std::vector<std::string> out;
  add_data_and_model(out, preset, configs.front());
  for (const auto& config : configs) add_optimizer(out, preset, config);
  if (configs.front().weights.empty() && preset.is_finetuning)
    out.emplace_back(
        "Training starts from random weights; the paper fine-tunes timm's weights (--weights FILE).");
  add_choices(out, preset, configs);
  return out;
}

}  // namespace tensorion::lab
