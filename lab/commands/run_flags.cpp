#include "lab/commands/run_flags.h"

#include <ATen/Parallel.h>
#include <c10/util/StringUtil.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <functional>
#include <iostream>
#include <optional>

#include "lab/commands/flag_values.h"
#include "lab/text.h"
#include "lab/training/interrupt.h"

namespace tensorion::lab {
namespace {

bool to_bool(const std::string& text, const std::string& what) {
  TORCH_CHECK_VALUE(text == "true" || text == "false", what, " must be true or false, got '", text, "'");
  return text == "true";
}

UnfoldingStrategy to_unfolding(const std::string& text) {
  if (text == "balanced" || text == "online") return text;
  Modes modes;
  for (const auto& part : split(text, ',')) {
    modes.push_back(to_integer(part, "--unfolding: balanced, online or modes such as 0,2: a mode"));
  }
  return modes;
}

Coefficients to_coefficients(const std::string& text) {
  if (text.find(',') == std::string::npos) return named_coefficients(text);
  Coefficients rows;
  for (const auto& row : split(text, ';')) {
    const auto parts = split(row, ',');
    TORCH_CHECK_VALUE(parts.size() == 3, "--ns-coefficients: a row must be three numbers a,b,c, got '", row,
                      "'");
    rows.push_back({});
    for (size_t i = 0; i < 3; ++i) rows.back()[i] = to_number(parts[i], "--ns-coefficients: each");
  }
  return rows;
}

TensorionOptions::Betas to_betas(const std::string& text) {
  const auto parts = split(text, ',');
  TORCH_CHECK_VALUE(parts.size() == 2, "--betas must be two numbers such as 0.9,0.999, got '", text, "'");
  return {to_number(parts[0], "--betas: each"), to_number(parts[1], "--betas: each")};
}

// A flag that may have another value for each optimizer.
struct OptimizerFlag {
  const char* option;  // its name in to_json(optimizer, options)
  const char* help;
  void (*set)(RunConfig& config, const std::string& value);
};

const OptimizerFlag kOptimizerFlags[] = {
    {"lr", "Learning rate",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.lr(to_number(v, "--lr")); }},
    {"weight_decay", "Weight decay",
     [](RunConfig& c, const std::string& v) {
       c.optimizer_options.weight_decay(to_number(v, "--weight-decay"));
     }},
    {"momentum", "Momentum (not of adamw)",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.momentum(to_number(v, "--momentum")); }},
    {"betas", "Betas of AdamW, as the optimizer or the fallback: 0.9,0.999",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.fallback_betas(to_betas(v)); }},
    {"eps", "Epsilon of AdamW",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.fallback_eps(to_number(v, "--eps")); }},
    {"unfolding", "Unfolding: balanced, online, or modes such as 0,2",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.unfolding(to_unfolding(v)); }},
    {"polar", "Method of the polar factor: auto, halley, newton_schulz, svd",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.polar(v); }},
    {"ns_coefficients", "Newton-Schulz: muon, polar_express, cans, or rows a,b,c;a,b,c",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.ns_coefficients(to_coefficients(v)); }},
    {"ns_steps", "Newton-Schulz: number of steps",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.ns_steps(to_integer(v, "--ns-steps")); }},
    {"adjust_lr", "Scale of the update: match_rms_adamw, original, conv_radius",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.adjust_lr_fn(v); }},
    {"nesterov", "Nesterov momentum: true or false",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.nesterov(to_bool(v, "--nesterov")); }},
    {"min_order", "Tensors of lower order go to the fallback",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.min_order(to_integer(v, "--min-order")); }},
    {"fallback", "Optimizer of the other tensors: sgd or adamw",
     [](RunConfig& c, const std::string& v) { c.optimizer_options.fallback(v); }},
    {"fallback_lr", "Its learning rate (default: that of --lr)",
     [](RunConfig& c, const std::string& v) {
       c.optimizer_options.fallback_lr(to_number(v, "--fallback-lr"));
     }},
    {"fallback_weight_decay", "Its weight decay (default: that of --weight-decay)",
     [](RunConfig& c, const std::string& v) {
       c.optimizer_options.fallback_weight_decay(to_number(v, "--fallback-weight-decay"));
     }},
    {"fallback_momentum", "Its momentum, where it is sgd",
     [](RunConfig& c, const std::string& v) {
       c.optimizer_options.fallback_momentum(to_number(v, "--fallback-momentum"));
     }},
    {"schedule", "Learning rate schedule: constant, multistep, cosine, onecycle",
     [](RunConfig& c, const std::string& v) { c.training.schedule.name = v; }},
};

std::string flag_name(const std::string& option) {
  std::string name = "--" + option;
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

bool applies(const std::string& optimizer, const std::string& option) {
  return option == "schedule" || has_option(optimizer, option);
}

// "sgd=0.1,adamw=1e-3": values by method; a text without such a beginning is one value for all, under "".
std::map<std::string, std::string> by_method(const std::string& text, const std::string& flag,
                                             const std::vector<std::string>& methods) {
  if (text.find('=') == std::string::npos) return {{"", text}};
  std::map<std::string, std::string> values;
  std::string name;
  for (const auto& part : split(text, ',')) {
    const auto equals = part.find('=');
    if (equals == std::string::npos && !name.empty()) {
      values[name] += "," + part;  // a value with a comma
      continue;
    }
    name = part.substr(0, equals);
    TORCH_CHECK_VALUE(equals != std::string::npos && std::count(methods.begin(), methods.end(), name) > 0,
                      flag, " must be a value, or optimizer=value for some of ", c10::Join(", ", methods),
                      ", got '", text, "'");
    values[name] = part.substr(equals + 1);
  }
  return values;
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
    flag.set(config, value->second);
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

}  // namespace

void add_run_flags(CLI::App& command, RunFlags& flags) {
  auto& common = flags.common;
  common.threads = at::get_num_threads();
  const std::string data = "Data and model", optimizer = "Optimizer", training = "Training",
                    output = "Output";

  command.add_option("--dataset", common.dataset, "Data set")
      ->check(CLI::IsMember(dataset_names()))
      ->capture_default_str()
      ->group(data);
  command.add_option("--data", common.data.folder, "Its folder, or one with a subfolder of its name")
      ->group(data);
  command
      .add_option("--image-size", common.data.image_size,
                  "Height and width of the pictures that the model sees")
      ->group(data);
  command.add_option("--limit-train", common.data.limit_train, "Train on so many samples")
      ->check(positive_count())
      ->group(data);
  command.add_option("--limit-test", common.data.limit_test, "Test on so many samples")
      ->check(positive_count())
      ->group(data);
  command.add_option("--model", common.model, "Model")
      ->check(CLI::IsMember(model_names()))
      ->capture_default_str()
      ->group(data);
  command.add_option("--width", common.width, "Factor of the model's width")
      ->capture_default_str()
      ->group(data);
  command.add_option("--depths", common.depths, "Blocks of each stage: 2,2,2,2")->delimiter(',')->group(data);
  command
      .add_option("--stem", common.stem,
                  "First layers of a ResNet: cifar, imagenet, or auto by the pictures' size")
      ->check(CLI::IsMember({"auto", "cifar", "imagenet"}))
      ->capture_default_str()
      ->group(data);
  command.add_option("--weights", common.weights, "Start from a safetensors file, such as timm's")
      ->check(CLI::ExistingFile)
      ->group(data);

  for (const auto& flag : kOptimizerFlags) {
    command.add_option(flag_name(flag.option), flags.optimizer[flag.option], flag.help)
        ->check([](const std::string& text) { return text.empty() ? "must not be empty" : ""; })
        ->group(optimizer);
  }

  auto& schedule = common.training.schedule;
  command.add_option("--milestones", schedule.milestones, "Of multistep, in epochs: 50,75")
      ->delimiter(',')
      ->group(training);
  command.add_option("--gamma", schedule.gamma, "Of multistep: the factor at a milestone")
      ->capture_default_str()
      ->group(training);
  command
      .add_flag("--cycle-momentum,!--no-cycle-momentum", schedule.cycle_momentum,
                "Of onecycle: whether it cycles the momentum too (default: yes)")
      ->group(training);
  command.add_option("--epochs", common.training.epochs, "Epochs")
      ->check(positive_count())
      ->capture_default_str()
      ->group(training);
  command.add_option("--batch-size", common.batch_size, "Batch size")
      ->check(positive_count())
      ->capture_default_str()
      ->group(training);
  command.add_option("--label-smoothing", common.training.label_smoothing, "Label smoothing, in [0, 1)")
      ->capture_default_str()
      ->group(training);
  command.add_option("--nonfinite", common.training.nonfinite, "At a loss or gradient that is not finite")
      ->check(CLI::IsMember({"error", "skip", "ignore"}))
      ->capture_default_str()
      ->group(training);
  command
      .add_flag("--channels-last,!--no-channels-last", common.channels_last,
                "Memory format of pictures and kernels (default: channels last)")
      ->group(training);
  command.add_option("--threads", common.threads, "Threads of torch")
      ->check(thread_count())
      ->capture_default_str()
      ->group(training);
  command
      .add_option("--workers", common.workers,
                  "Threads that make batches (default: 1; for files as --threads)")
      ->check(thread_count())
      ->group(training);

  command
      .add_option("--out", flags.out, "Folder of the results (default: runs/ and a name from the options)")
      ->group(output);
  command.add_flag("--resume", flags.resume, "Go on with what the folder has")->group(output);
  command
      .add_option("--checkpoint-every", flags.checkpoint_every, "Seconds between checkpoints within an epoch")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(output);
}

std::vector<RunConfig> make_configs(const RunFlags& flags, const std::vector<Method>& methods) {
  std::vector<RunConfig> configs;
  std::vector<std::string> names;
  for (const auto& method : methods) {
    auto& config = configs.emplace_back(flags.common);
    config.optimizer = method.optimizer;
    config.optimizer_options = default_options(method.optimizer);
    if (method.name != method.optimizer) config.label = method.name;
    for (const auto& [option, value] : method.options) find_flag(option).set(config, value);
    names.push_back(method.name);
  }
  for (const auto& flag : kOptimizerFlags) {
    const auto& text = flags.optimizer.at(flag.option);
    if (!text.empty()) set_option(configs, flag, text, names);
  }
  for (const auto& config : configs) {
    config.optimizer_options.check();
    Schedule(config.training.schedule, config.training.epochs, 1);
  }
  return configs;
}

void run_interruptible(const std::function<void()>& train) {
  const InterruptGuard guard;
  try {
    train();
  } catch (const Interrupted& error) {
    std::cerr << error.what() << "\nTo go on, run the same command with --resume.\n";
    throw CLI::RuntimeError(128 + interrupt_signal());
  }
}

RunOptions run_options(const RunFlags& flags, const std::filesystem::path& folder) {
  RunOptions options;
  options.folder = folder;
  options.resume = flags.resume;
  options.checkpoint_every = flags.checkpoint_every;
  options.interrupted = [] { return interrupt_signal() != 0; };
  options.warn = [](const std::string& what) { std::cerr << "Warning: " << what << '\n'; };
  return options;
}

}  // namespace tensorion::lab
