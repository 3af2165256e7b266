#include "lab/training/optimizers.h"

#include <c10/util/StringUtil.h>

#include <nlohmann/json.hpp>

#include "lab/io/json_file.h"

namespace tensorion::lab {

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names{"sgd", "adamw", "muon", "tensorion"};
  return names;
}

TensorionOptions default_options(const std::string& optimizer) {
  // The trainer checks the gradients itself, because it can name the parameters.
  TensorionOptions options = TensorionOptions().nonfinite("ignore");
  if (optimizer == "sgd") return options.algorithm("sgd").lr(0.1).momentum(0.9).weight_decay(5e-4);
  if (optimizer == "adamw") return options.algorithm("adamw").lr(2e-3).weight_decay(0.01);
  if (optimizer == "muon") return options.unfolding(Modes{0}).lr(5e-3);
  TORCH_CHECK_VALUE(optimizer == "tensorion", "[tensorion.optimizers] optimizer must be one of ",
                    c10::Join(", ", optimizer_names()), ", got ", optimizer);
  return options.lr(5e-3);
}

bool has_option(const std::string& optimizer, const std::string& option) {
  if (option == "lr" || option == "weight_decay") return true;
  if (optimizer == "sgd") return option == "momentum";
  if (optimizer == "adamw") return option == "betas" || option == "eps";
  return optimizer == "tensorion" || (option != "unfolding" && option != "online_interval");
}

nlohmann::ordered_json to_json(const std::string& optimizer, const TensorionOptions& options) {
  const auto [beta1, beta2] = options.fallback_betas();
  const nlohmann::ordered_json all{
      {"lr", options.lr()},
      {"weight_decay", options.weight_decay()},
      {"momentum", options.momentum()},
      {"nesterov", options.nesterov()},
      {"unfolding", options.unfolding().str()},
      {"online_interval", options.online_interval()},
      {"batch_modes", options.batch_modes()},
      {"split_sizes", options.split_sizes()},
      {"polar", options.polar()},
      {"ns_coefficients", or_null(options.ns_coefficients())},
      {"ns_steps", or_null(options.ns_steps())},
      {"adjust_lr", options.adjust_lr_fn()},
      {"min_order", options.min_order()},
      {"fallback", options.fallback().value_or("none")},
      {"fallback_lr", options.fallback_lr().value_or(options.lr())},
      {"fallback_weight_decay", options.fallback_weight_decay().value_or(options.weight_decay())},
      {"fallback_momentum", options.fallback_momentum()},
      {"betas", {beta1, beta2}},
      {"eps", options.fallback_eps()},
  };
  nlohmann::ordered_json own;
  for (const auto& [name, value] : all.items()) {
    if (has_option(optimizer, name)) own[name] = value;
  }
  return own;
}

}  // namespace tensorion::lab
