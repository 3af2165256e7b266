#include "lab/flags/optimizer_flags.h"

#include <c10/util/StringUtil.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lab/text/strings.h"
#include "lab/text/usage_error.h"

namespace tensorion::lab {
namespace {

bool to_bool(const std::string& text, const std::string& what) {
  TORCH_CHECK_VALUE(text == "true" || text == "false", what, " must be true or false, got '", text, "'");
  return text == "true";
}

UnfoldingStrategy to_unfolding(const std::string& text) {
  if (text == "balanced" || text == "online") return text;
  if (text.starts_with('(')) return UnfoldingStrategy::parse(text);  // the form in config.json
  Modes modes;
  for (const auto& part : split(text, ',')) {
    modes.push_back(to_integer(part, "--unfolding must be balanced, online or modes such as 0,2; a mode"));
  }
  return modes;
}

std::vector<int64_t> to_integers(const std::string& text, const std::string& what) {
  std::vector<int64_t> values;
  if (text.empty()) return values;
  for (const auto& part : split(text, ',')) values.push_back(to_integer(part, what));
  return values;
}

Coefficients to_coefficients(const std::string& text) {
  if (text.find(',') == std::string::npos) return named_coefficients(text);
  Coefficients rows;
  for (const auto& row : split(text, ';')) {
    const auto parts = split(row, ',');
    TORCH_CHECK_VALUE(parts.size() == 3, "--ns-coefficients: each row must have three numbers a,b,c, got '",
                      row, "'");
    rows.push_back({});
    for (size_t i = 0; i < 3; ++i)
      rows.back()[i] = to_number(parts[i], "--ns-coefficients: each coefficient");
  }
  return rows;
}

TensorionOptions::Betas to_betas(const std::string& text) {
  const auto parts = split(text, ',');
  TORCH_CHECK_VALUE(parts.size() == 2, "--betas must be two numbers such as 0.9,0.999, got '", text, "'");
  return {to_number(parts[0], "--betas: each value"), to_number(parts[1], "--betas: each value")};
}

struct OptimizerFlag {
  // Name in to_json(optimizer, options). The flag has dashes instead of underscores.
  const char* option;
  const char* help;
  void (*set)(RunConfig& config, const std::string& value);
};

// All flags of the optimizers. To add an option, add a row here.
const OptimizerFlag kOptimizerFlags[] = {
    {"lr", "Learning rate",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.lr(to_number(v, "--lr")); }},
    {"weight_decay", "Weight decay",
     [](RunConfig& c, const std::string& v) {
       c.optimizer_options.weight_decay(to_number(v, "--weight-decay"));
     }},
    {"momentum", "Momentum (not used by adamw)",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.momentum(to_number(v, "--momentum")); }},
    {"betas", "Betas of AdamW (as the optimizer or the fallback), such as 0.9,0.999",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.fallback_betas(to_betas(v)); }},
    {"eps", "Epsilon of AdamW (as the optimizer or the fallback)",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.fallback_eps(to_number(v, "--eps")); }},
    {"unfolding", "Unfolding: balanced, online, or modes such as 0,2",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.unfolding(to_unfolding(v)); }},
    {"online_interval", "With --unfolding online: number of steps between two choices of the unfolding",
     [](RunConfig& c, const std::string& v) {
       c.optimizer_options.online_interval(to_integer(v, "--online-interval"));
     }},
    {"batch_modes", "Modes that enumerate independent tensors, such as 0 for a stack of experts",
     [](RunConfig& c, const std::string& v) {
       c.optimizer_options.batch_modes(to_integers(v, "--batch-modes: each mode"));
     }},
    {"split_sizes",
     "Independent blocks along mode 0: their number, such as 3, or their sizes, such as 512,256",
     [](RunConfig& c, const std::string& v) {
       c.optimizer_options.split_sizes(to_integers(v, "--split-sizes: each size"));
     }},
    {"polar", "Method of the polar factor: auto, halley, newton_schulz, svd",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.polar(v); }},
    {"ns_coefficients",
     "Coefficients of Newton-Schulz: muon, polar_express, cans, or rows such as a,b,c;a,b,c",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.ns_coefficients(to_coefficients(v)); }},
    {"ns_steps", "Number of Newton-Schulz steps",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.ns_steps(to_integer(v, "--ns-steps")); }},
    {"adjust_lr", "Scale of the update: match_rms_adamw, original, spectral_unclamped, conv_radius",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.adjust_lr_fn(v); }},
    {"nesterov", "Nesterov momentum: true or false",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.nesterov(to_bool(v, "--nesterov")); }},
    {"min_order", "Parameters of lower order go to the fallback",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.min_order(to_integer(v, "--min-order")); }},
    {"fallback", "Optimizer of the other parameters: sgd or adamw",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.fallback(v); }},
    {"fallback_lr", "Learning rate of the fallback",
     [](RunConfig& c, const std::string& v) {
       c.optimizer_options.fallback_lr(to_number(v, "--fallback-lr"));
     }},
    {"fallback_weight_decay", "Weight decay of the fallback",
     [](RunConfig& c, const std::string& v) {
       c.optimizer_options.fallback_weight_decay(to_number(v, "--fallback-weight-decay"));
     }},
    {"fallback_momentum", "Momentum of the fallback, if it is sgd",
     [](RunConfig& c, const std::string& v) {
       c.optimizer_options.fallback_momentum(to_number(v, "--fallback-momentum"));
     }},
    {"schedule", "Learning rate schedule: constant, multistep, cosine, onecycle",
     [](RunConfig& c, const std::string& v) { c.training.schedule.name = v; }},
};

bool applies(const std::string& optimizer, const std::string& option) {
  return option == "schedule" || has_option(optimizer, option);
}

// Parses values by method, such as "sgd=0.1,adamw=1e-3". A text without "=" is one value for all methods and
// has the key "".
std::map<std::string, std::string> by_method(const std::string& text, const std::string& flag,
                                             const std::vector<std::string>& methods) {
  if (text.find('=') == std::string::npos) return {{"", text}};
  std::map<std::string, std::string> values;
  std::string name;
  for (const auto& part : split(text, ',')) {
    const auto equals = part.find('=');
    if (equals == std::string::npos && !name.empty()) {
      values[name] += "," + part;  // the value contains a comma
      continue;
    }
    name = part.substr(0, equals);
    TORCH_CHECK_VALUE(equals != std::string::npos && std::count(methods.begin(), methods.end(), name) > 0,
                      flag, " must be a value or a list of OPTIMIZER=VALUE with optimizers from ",
                      c10::Join(", ", methods), ", got '", text, "'");
    values[name] = part.substr(equals + 1);
  }
  return values;
}

// Names of options in the library that differ from the name of the flag.
const std::map<std::string, std::string> kLibraryNames{
    {"betas", "fallback_betas"}, {"eps", "fallback_eps"}, {"adjust_lr", "adjust_lr_fn"}};

// Sets the option and checks it. Errors name the flag instead of the function and option of the library.
void set_checked(RunConfig& config, const OptimizerFlag& flag, const std::string& value) {
  try {
    flag.set(config, value);
    config.optimizer_options.check();
  } catch (const c10::Error& error) {
    std::string text = error.what_without_backtrace();
    if (const auto end = text.find("] "); text.starts_with('[') && end != std::string::npos)
      text = text.substr(end + 2);
    const auto other = kLibraryNames.find(flag.option);
    const std::string name = other == kLibraryNames.end() ? flag.option : other->second;
    if (text.starts_with(name + " ")) text = flag_name(flag.option) + text.substr(name.size());
    if (text.find(flag_name(flag.option)) == std::string::npos) text = flag_name(flag.option) + ": " + text;
    throw UsageError(text);
  }
}

// Returns the reason why the option has no effect on the run, or an empty string if it has an effect.
std::string no_effect(const RunConfig& config, const std::string& option) {
  const auto& options = config.optimizer_options;
  const bool has_fallback = config.optimizer == "muon" || config.optimizer == "tensorion";
  const auto fallback = options.fallback().value_or("none");
  if ((option == "betas" || option == "eps") && has_fallback && fallback != "adamw")
    return "with --fallback " + fallback;
  if (option == "fallback_momentum" && fallback != "sgd") return "with --fallback " + fallback;
  if (option == "online_interval" && !options.unfolding().is_online()) return "without --unfolding online";
  const bool is_newton_schulz =
      options.polar() == "newton_schulz" || (options.polar() == "auto" && !config.training.device.is_cpu());
  if ((option == "ns_steps" || option == "ns_coefficients") && !is_newton_schulz) {
    return "with --polar " + options.polar() +
           (options.polar() == "auto" ? " on the CPU, which means halley; use --polar newton_schulz" : "");
  }
  return "";
}

// Throws if no milestone of a multistep schedule comes before the end, because the schedule would be
// constant.
void check_milestones(const RunConfig& config) {
  if (config.training.schedule.name != "multistep") return;
  const auto milestones = epochs_of_milestones(config.training.schedule, config.training.epochs);
  if (std::any_of(milestones.begin(), milestones.end(),
                  [&](int64_t milestone) { return milestone < config.training.epochs; }))
    return;
  throw UsageError(c10::str("--schedule multistep has no effect: expected a milestone before epoch ",
                            config.training.epochs, ", the last one, got ", c10::Join(", ", milestones),
                            " (--milestones)"));
}

void check_effect(const std::vector<RunConfig>& configs, const std::string& option) {
  std::string reason;
  for (const auto& config : configs) {
    if (!applies(config.optimizer, option)) continue;
    reason = no_effect(config, option);
    if (reason.empty()) return;
  }
  if (!reason.empty()) throw UsageError(flag_name(option) + " has no effect " + reason);
}

// Returns the value of the option in a run, as --help shows it.
std::string value_text(const RunConfig& config, const std::string& option) {
  const auto& options = config.optimizer_options;
  if (option == "schedule") return config.training.schedule.name;
  if (option == "fallback_lr" && !options.fallback_lr()) return "the value of --lr";
  if (option == "fallback_weight_decay" && !options.fallback_weight_decay())
    return "the value of --weight-decay";
  const auto value = to_json(config.optimizer, options).at(option);
  if (value.is_null()) return "the best values for the method and the device";
  if (value.empty()) return "none";
  auto text = value.is_string() ? value.get<std::string>() : value.dump();
  std::erase_if(text, [](char c) { return c == '[' || c == ']' || c == '"'; });
  return text;
}

// Returns a text such as "a, b and c".
std::string enumeration(const std::vector<std::string>& names) {
  const std::vector<std::string> first(names.begin(), names.end() - 1);
  return first.empty() ? names.back() : c10::Join(", ", first) + " and " + names.back();
}

// Returns a text such as "0.1 for sgd; 0.002 for adamw; 0.005 for muon and tensorion".
std::string default_text(const std::vector<RunConfig>& configs, const std::string& option) {
  std::vector<std::pair<std::string, std::vector<std::string>>> values;
  for (const auto& config : configs) {
    if (!applies(config.optimizer, option)) continue;
    const auto text = value_text(config, option);
    auto known =
        std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == text; });
    if (known == values.end()) known = values.insert(values.end(), {text, {}});
    known->second.push_back(method_name(config));
  }
  if (values.size() == 1) return values.front().first;
  std::string out;
  for (const auto& [text, names] : values)
    out += (out.empty() ? "" : "; ") + text + " for " + enumeration(names);
  return out;
}

void set_option(std::vector<RunConfig>& configs, const OptimizerFlag& flag, const std::string& text,
                const std::vector<std::string>& methods) {
  const auto name = flag_name(flag.option);
  const auto values = by_method(text, name, methods);
  bool used = false;
  for (auto& config : configs) {
    const auto own = values.find(method_name(config));
    const auto value = own != values.end() ? own : values.find("");
    if (value == values.end()) continue;
    const bool fits = applies(config.optimizer, flag.option);
    TORCH_CHECK_VALUE(fits || own == values.end(), method_name(config), " has no ", name);
    if (!fits) continue;
    set_checked(config, flag, value->second);
    used = true;
  }
  TORCH_CHECK_VALUE(used, c10::Join(", ", methods), methods.size() == 1 ? " has no " : " have no ", name);
}

const OptimizerFlag& find_flag(const std::string& option) {
  const auto* found = std::find_if(std::begin(kOptimizerFlags), std::end(kOptimizerFlags),
                                   [&](const OptimizerFlag& flag) { return flag.option == option; });
  TORCH_INTERNAL_ASSERT(found != std::end(kOptimizerFlags), "no option ", option);
  return *found;
}

std::vector<RunConfig> unchecked_configs(const RunConfig& common, const OptimizerFlags& given,
                                         const std::vector<Method>& methods) {
  std::vector<RunConfig> configs;
  std::vector<std::string> names;
  for (const auto& method : methods) {
    auto& config = configs.emplace_back(common);
    config.optimizer = method.optimizer;
    config.optimizer_options = default_options(method.optimizer);
    if (method.name != method.optimizer) config.label = method.name;
    for (const auto& [option, value] : method.options) find_flag(option).set(config, value);
    names.push_back(method.name);
  }
  for (const auto& flag : kOptimizerFlags) {
    const auto text = given.find(flag.option);
    if (text != given.end() && !text->second.empty()) set_option(configs, flag, text->second, names);
  }
  for (const auto& config : configs) {
    config.optimizer_options.check();
    make_schedule(config.training.schedule, config.training.epochs, 1);
  }
  return configs;
}

}  // namespace

void add_optimizer_flags(CLI::App& command, OptimizerFlags& given, const std::string& group) {
  for (const auto& flag : kOptimizerFlags) {
    command.add_option(flag_name(flag.option), given[flag.option])
        ->check([](const std::string& text) { return text.empty() ? "must not be empty" : ""; })
        ->group(group);
  }
  std::vector<Method> methods;
  for (const auto& name : optimizer_names()) methods.push_back({name, name});
  show_optimizer_defaults(command, methods);
}

void show_optimizer_defaults(CLI::App& command, const std::vector<Method>& methods) {
  const auto configs = unchecked_configs({}, /*given=*/{}, methods);
  for (const auto& flag : kOptimizerFlags) {
    const auto text = default_text(configs, flag.option);
    command.get_option(flag_name(flag.option))
        ->description(std::string(flag.help) + (text.empty() ? "" : " (default: " + text + ")"));
  }
}

void check_effects(const std::vector<RunConfig>& configs, const std::set<std::string>& given) {
  for (const auto& flag : kOptimizerFlags) {
    if (given.contains(flag_name(flag.option))) check_effect(configs, flag.option);
  }
  const auto needs_schedule = [&](const char* flag, const std::string& schedule) {
    const bool has_it = std::any_of(configs.begin(), configs.end(), [&](const RunConfig& config) {
      return config.training.schedule.name == schedule;
    });
    if (given.contains(flag) && !has_it)
      throw UsageError(std::string(flag) + " has no effect without --schedule " + schedule);
  };
  needs_schedule("--milestones", "multistep");
  needs_schedule("--gamma", "multistep");
  needs_schedule("--cycle-momentum", "onecycle");
  if (given.contains("--schedule") || given.contains("--milestones")) {
    for (const auto& each : configs) check_milestones(each);
  }
  const auto& config = configs.front();
  if (given.contains("--stem") && !config.model.starts_with("resnet"))
    throw UsageError("--stem has no effect on " + config.model + ", which is not a ResNet");
}

std::vector<RunConfig> make_configs(const RunConfig& common, const OptimizerFlags& given,
                                    const std::vector<Method>& methods) {
  return checked_usage([&] { return unchecked_configs(common, given, methods); });
}

}  // namespace tensorion::lab
