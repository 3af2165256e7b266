#include "lab/flags/run_flags.h"

#include <ATen/Parallel.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lab/flags/validators.h"
#include "lab/io/atomic_file.h"
#include "lab/io/toml_file.h"
#include "lab/training/device.h"
#include "lab/training/interrupt.h"

namespace tensorion::lab {

void add_run_flags(CLI::App& command, RunFlags& flags) {
  auto& common = flags.common;
  common.threads = at::get_num_threads();
  const std::string data = "Data and model", optimizer = "Optimizer", training = "Training",
                    output = "Output";

  add_config_flags(command, flags.config);
  add_dry_run_flag(command, flags.config);
  command.add_option("--dataset", common.dataset, "Data set")
      ->check(one_of(dataset_names()))
      ->capture_default_str()
      ->group(data);
  command
      .add_option("--data", common.data.folder,
                  "Its folder, or one with a subfolder of its name (default: TENSORION_DATA, or where "
                  "packages put it)")
      ->check(utf8_path())
      ->group(data);
  command
      .add_option("--image-size", common.data.image_size,
                  "Height and width of the pictures that the model sees (default: the model's, or that of "
                  "pictures of up "
                  "to 64 pixels, or 224)")
      ->check(whole_number(1, 16384))
      ->group(data);
  command.add_option("--limit-train", common.data.limit_train, "Train on so many samples (default: all)")
      ->check(positive_count())
      ->group(data);
  command.add_option("--limit-test", common.data.limit_test, "Test on so many samples (default: all)")
      ->check(positive_count())
      ->group(data);
  command
      .add_option("--validation", common.data.validation,
                  "Hold out so many samples of the training set, the same number of every class; --grid "
                  "chooses by them (0: a tenth; default: none, with --grid a tenth)")
      ->check(non_negative_count())
      ->group(data);
  command.add_option("--flip", common.data.flip, "Random flips of pictures to train on")
      ->check(one_of({"none", "horizontal", "both"}))
      ->capture_default_str()
      ->group(data);
  command
      .add_flag("--transpose", common.data.transpose,
                "Exchange height and width of all pictures, which must be square")
      ->group(data);
  command.add_option("--model", common.model, "Model")
      ->check(one_of(model_names()))
      ->capture_default_str()
      ->group(data);
  command.add_option("--width", common.width, "Factor of the model's width")
      ->capture_default_str()
      ->group(data);
  command.add_option("--depths", common.depths, "Blocks of each stage: 2,2,2,2 (default: the model's)")
      ->delimiter(',')
      ->group(data);
  command
      .add_option("--stem", common.stem,
                  "First layers of a ResNet: cifar, imagenet, or auto by the pictures' size")
      ->check(one_of({"auto", "cifar", "imagenet"}))
      ->capture_default_str()
      ->group(data);
  command
      .add_option("--weights", common.weights,
                  "Start from a safetensors file, such as timm's (default: fresh weights)")
      ->check(utf8_path())
      ->group(data);

  add_optimizer_flags(command, flags.optimizer, optimizer);

  auto& schedule = common.training.schedule;
  command
      .add_option("--milestones", schedule.milestones,
                  "Of multistep, in epochs: 50,75 (default: a half and three quarters of --epochs)")
      ->delimiter(',')
      ->group(training);
  command.add_option("--gamma", schedule.gamma, "Of multistep: the factor at a milestone")
      ->capture_default_str()
      ->group(training);
  command
      .add_flag("--cycle-momentum,!--no-cycle-momentum", schedule.cycle_momentum,
                "Of onecycle: whether it cycles the momentum too (default: yes)")
      ->group(training);
  command
      .add_option("--warmup-epochs", schedule.warmup_epochs,
                  "Epochs, or a part of one, in which the learning rate rises to its value (not of onecycle)")
      ->check(non_negative_number())
      ->capture_default_str()
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
      ->check(number_in(0, 1))
      ->capture_default_str()
      ->group(training);
  command.add_option("--nonfinite", common.training.nonfinite, "At a loss or gradient that is not finite")
      ->check(one_of({"error", "skip", "ignore"}))
      ->capture_default_str()
      ->group(training);
  command
      .add_option("--clip-grad", common.training.clip_grad,
                  "Scale gradients down to this norm, of all parameters together; 0: do not")
      ->check(non_negative_number())
      ->capture_default_str()
      ->group(training);
  command
      .add_option("--accumulate", common.training.accumulate,
                  "Batches whose gradients make one step of the optimizer")
      ->check(positive_count())
      ->capture_default_str()
      ->group(training);
  command
      .add_option("--ema", common.training.ema,
                  "Decay of a moving average of the weights, tested and saved beside them; 0: none")
      ->check(number_in(0, 1))
      ->capture_default_str()
      ->group(training);
  command.add_option("--device", flags.device, "auto, cpu, or an accelerator: cuda, cuda:1, mps, xpu")
      ->capture_default_str()
      ->group(training);
  command
      .add_option("--amp", common.training.amp, "Automatic mixed precision: bf16, or fp16 with loss scaling")
      ->check(one_of({"off", "bf16", "fp16"}))
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
  command
      .add_option("--log-steps", common.training.log_steps,
                  "Write loss, learning rate, gradient norm and images/s every so many steps to steps.jsonl; "
                  "0: do not")
      ->check(non_negative_count())
      ->capture_default_str()
      ->group(output);
  command
      .add_flag("--resume", flags.resume,
                "Go on with what the folder has; --resume DIR: with what DIR has, and its flags")
      ->group(output);
  command
      .add_option("--checkpoint-every", flags.checkpoint_every, "Seconds between checkpoints within an epoch")
      ->check(non_negative_number())
      ->capture_default_str()
      ->group(output);
}

namespace {

nlohmann::ordered_json config_values(const CLI::App& command, const std::vector<RunConfig>& configs) {
  auto values = resolved_flags(command, configs);
  const auto* preset = command.get_option_no_throw("--preset");
  if (preset != nullptr && preset->empty()) values.erase("scale");
  return values;
}

}  // namespace

std::string config_text(const CLI::App& command, const std::vector<RunConfig>& configs) {
  return to_toml(config_values(command, configs));
}

bool printed_config(const CLI::App& command, const RunFlags& flags, const std::vector<RunConfig>& configs) {
  if (flags.config.print) std::cout << config_text(command, configs);
  return flags.config.print;
}

void write_config(const CLI::App& command, const RunFlags& flags, const std::vector<RunConfig>& configs,
                  const std::filesystem::path& folder) {
  if (flags.resume && std::filesystem::exists(folder / "config.toml")) return;
  auto values = config_values(command, configs);
  for (const char* key : {"out", "resume"}) values.erase(key);
  if (values.value("grid", false)) values.erase("lr");  // the learning rate is searched
  if (!flags.common.data.folder.empty())
    values["data"] = std::filesystem::absolute(flags.common.data.folder).lexically_normal().string();
  write_file(folder / "config.toml", to_toml(values));
}

std::vector<RunConfig> make_configs(const RunFlags& flags, const std::vector<Method>& methods) {
  auto common = flags.common;
  common.training.device = resolve_device(flags.device);
  common.training.defer_metrics = !common.training.device.is_cpu();
  auto configs = make_configs(common, flags.optimizer, methods);
  check_effects(configs, flags.given);
  return configs;
}

DatasetSplits load_and_warn(const RunConfig& config) {
  auto data = load_data(config);
  if (data.classes.size() == 1) {
    std::cerr << "Warning: the data has one class, " << data.classes.front()
              << ": every model is right about all of it\n";
  }
  return data;
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
