#include "lab/experiments/deviations.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lab/text/strings.h"

namespace tensorion::lab {
namespace {

bool is_tensorion(const RunConfig& config) {
  return config.optimizer == "muon" || config.optimizer == "tensorion";
}

const PresetMethod* find_method(const Preset& preset, const std::string& name) {
  for (const auto& method : preset.methods) {
    if (method.method.name == name) return &method;
  }
  return nullptr;
}

std::string option_of(const PresetMethod& method, const std::string& option) {
  for (const auto& [name, value] : method.method.options) {
    if (name == option) return value;
  }
  return "";
}

void add_data_and_model(std::vector<std::string>& out, const Preset& preset, const RunConfig& config) {
  const auto differs = [&](const std::string& what, const std::string& own, const char* flag) {
    const auto paper = flag_of(preset, flag);
    if (own != paper) out.push_back(what + " is " + own + "; the paper has " + paper + ".");
  };
  differs("The data set", config.dataset, "--dataset");
  differs("The model", config.model, "--model");
  differs("The number of epochs", std::to_string(config.training.epochs), "--epochs");
  if (config.width != 1) out.push_back(string_printf("The model has %g of the width.", config.width));
  if (!config.depths.empty())
    out.push_back("The stages have " + c10::Join(", ", config.depths) + " blocks, fewer than the paper's.");
  const auto& data = config.data;
  if (data.limit_train)
    out.push_back(string_printf("Training uses %ld samples, a part of the training set.", *data.limit_train));
  if (data.limit_test)
    out.push_back(string_printf("Testing uses %ld samples, a part of the test set.", *data.limit_test));
  if (data.validation) out.emplace_back("A part of the training set is held out for validation.");
  if (data.image_size) out.push_back(string_printf("Pictures are resized to %ld pixels.", *data.image_size));
  if (data.transpose) out.emplace_back("Pictures are transposed.");
  if (data.flip != "horizontal")
    out.emplace_back(data.flip == "none" ? "Pictures are not flipped." : "Pictures are flipped both ways.");
}

void add_optimizer(std::vector<std::string>& out, const Preset& preset, const RunConfig& config) {
  const auto& name = method_name(config);
  const auto* method = find_method(preset, name);
  if (method == nullptr) {
    out.push_back("The paper does not have the method " + name + ".");
  } else {
    const auto& options = config.optimizer_options;
    const double lr = to_number(option_of(*method, "lr"), "lr");
    if (options.lr() != lr)
      out.push_back(name + string_printf(" has the learning rate %g; the paper has %g.", options.lr(), lr));
    const double decay = to_number(option_of(*method, "weight_decay"), "weight_decay");
    if (options.weight_decay() != decay)
      out.push_back(
          name + string_printf(" has the weight decay %g; the paper has %g.", options.weight_decay(), decay));
    const auto schedule = option_of(*method, "schedule");
    if (config.training.schedule.name != schedule)
      out.push_back(name + " has the schedule " + config.training.schedule.name + "; the paper has " +
                    schedule + ".");
  }
  if (!is_tensorion(config)) return;
  const auto& polar = config.optimizer_options.polar();
  if (polar != preset.polar) {
    out.push_back(name + " computes polar factors by polar=" + polar +
                  (polar == "auto" ? ", on the CPU the rational filter" : "") + "; the paper uses " +
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
        "The momentum (by default 0.95 for Tensorion and 0.9 for SGD) is our choice; the paper names none.");
  }
  if (has_schedule("onecycle") && configs.front().training.schedule.cycle_momentum) {
    out.emplace_back(
        "onecycle moves the momentum, and beta1 of AdamW, between 0.95 and 0.85, as torch's OneCycleLR "
        "does.");
  }
  if (has_schedule("multistep")) {
    const auto& training = configs.front().training;
    out.push_back(string_printf("multistep multiplies the learning rate by %g after the epochs ",
                                training.schedule.gamma) +
                  c10::Join(", ", epochs_of_milestones(training.schedule, training.epochs)) + ".");
  }
  for (const auto& config : configs) {
    if (!is_tensorion(config)) continue;
    const auto& options = config.optimizer_options;
    const double fallback_lr = options.fallback_lr().value_or(options.lr());
    out.push_back(
        method_name(config) +
        string_printf(" has the learning rate %g for the fallback; the paper names none.", fallback_lr));
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
    out.emplace_back("Training starts from random weights; the paper fine-tunes timm's (--weights FILE).");
  add_choices(out, preset, configs);
  return out;
}

}  // namespace tensorion::lab
