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

// One sentence about each method. The sentence consists of a beginning, " of ", the name of the method, and
// an ending; without an ending there is nothing to say about the method.
struct MethodSentences {
  std::string beginning;
  std::vector<std::pair<std::string, std::string>> endings = {};  // name of the method, ending

  void add(const RunConfig& config, const std::string& ending) {
    endings.emplace_back(method_name(config), ending);
  }

  // Adds the sentences, or a single one for all methods if there are several with the same ending.
  void append_to(std::vector<std::string>& out) const {
    const auto is_like_first = [&](const auto& each) { return each.second == endings.front().second; };
    if (endings.size() > 1 && std::all_of(endings.begin(), endings.end(), is_like_first)) {
      if (!endings.front().second.empty())
        out.push_back(beginning + " of all methods" + endings.front().second);
      return;
    }
    for (const auto& [name, ending] : endings) {
      if (!ending.empty()) out.push_back(beginning + " of " + name + ending);
    }
  }
};

std::string number_differs(double own, double paper) {
  return own == paper ? "" : string_printf(" is %g; in the paper it is %g.", own, paper);
}

std::string polar_differs(const std::string& own, const std::string& paper) {
  if (own == paper) return "";
  return " are computed with --polar " + own +
         (own == "auto" ? ", which is the rational filter on a CPU" : "") + "; the paper uses " +
         (paper == "svd" ? "the SVD." : "Newton-Schulz (--polar newton_schulz).");
}

void add_optimizers(std::vector<std::string>& out, const Preset& preset,
                    const std::vector<RunConfig>& configs) {
  MethodSentences lr{"The learning rate"};
  MethodSentences weight_decay{"The weight decay"};
  MethodSentences schedule{"The schedule"};
  MethodSentences polar{"Polar factors"};
  for (const auto& config : configs) {
    const auto& options = config.optimizer_options;
    if (is_tensorion(config)) polar.add(config, polar_differs(options.polar(), preset.polar));
    const auto* method = preset.find_method(method_name(config));
    if (method == nullptr) {
      out.push_back("The method " + method_name(config) + " is not in the paper.");
      continue;
    }
    lr.add(config, number_differs(options.lr(), to_number(method->option("lr"), "lr")));
    if (preset.specifies_weight_decay) {
      weight_decay.add(config, number_differs(options.weight_decay(),
                                              to_number(method->option("weight_decay"), "weight_decay")));
    }
    const auto& own = config.training.schedule.name;
    const auto paper = method->option("schedule");
    schedule.add(config, own == paper ? "" : " is " + own + "; in the paper it is " + paper + ".");
  }
  for (const auto& sentences : {lr, weight_decay, schedule, polar}) sentences.append_to(out);
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
  const auto choice = [](double value) {
    return string_printf(", %g, is our choice; the paper does not specify it.", value);
  };
  MethodSentences fallback_lr{"The learning rate of the fallback"};
  MethodSentences weight_decay{"The weight decay"};
  for (const auto& config : configs) {
    const auto& options = config.optimizer_options;
    if (is_tensorion(config)) fallback_lr.add(config, choice(options.fallback_lr().value_or(options.lr())));
    if (!preset.specifies_weight_decay) weight_decay.add(config, choice(options.weight_decay()));
  }
  fallback_lr.append_to(out);
  weight_decay.append_to(out);
  out.insert(out.end(), preset.choices.begin(), preset.choices.end());
}

}  // namespace

std::vector<std::string> deviations(const Preset& preset, const std::vector<RunConfig>& configs) {
  if (preset.polar.empty()) return {};
  std::vector<std::string> out;
  add_data_and_model(out, preset, configs.front());
  add_optimizers(out, preset, configs);
  if (configs.front().weights.empty() && preset.is_finetuning)
    out.emplace_back(
        "Training starts from random weights; the paper fine-tunes timm's weights (--weights FILE).");
  add_choices(out, preset, configs);
  return out;
}

}  // namespace tensorion::lab
