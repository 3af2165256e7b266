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
      .add_option(
          "--data", common.data.folder,
          "Folder of the data set, or a folder with a subfolder of its name (default: TENSORION_DATA; for "
          "fashion-mnist also Debian's package dataset-fashion-mnist)")
      ->check(utf8_path())
      ->group(data);
  command
      .add_option(
          "--image-size", common.data.image_size,
          "Height and width of the images that the model sees (default: what the model requires; otherwise "
          "images of at most 64 pixels keep their size, and larger ones are resized to 224)")
      ->check(whole_number(1, 16384))
      ->group(data);
  command
      .add_option("--limit-train", common.data.limit_train,
                  "Number of training samples to use (default: all)")
      ->check(positive_count())
      ->group(data);
  command.add_option("--limit-test", common.data.limit_test, "Number of test samples to use (default: all)")
      ->check(positive_count())
      ->group(data);
  command
      .add_option(
          "--validation", common.data.validation,
          "Number of training samples to hold out, balanced over the classes. --grid chooses learning rates "
          "with them. 0 means a tenth (default: none; a tenth with --grid)")
      ->check(non_negative_count())
      ->group(data);
  command.add_option("--flip", common.data.flip, "Random flips of the training images")
      ->check(one_of({"none", "horizontal", "both"}))
      ->capture_default_str()
      ->group(data);
  command
      .add_flag("--transpose", common.data.transpose,
                "Exchange height and width of all images, which must be square")
      ->group(data);
  command.add_option("--model", common.model, "Model")
      ->check(one_of(model_names()))
      ->capture_default_str()
      ->group(data);
  command.add_option("--width", common.width, "Factor by which the width of the model is multiplied")
      ->capture_default_str()
      ->group(data);
  command
      .add_option("--depths", common.depths,
                  "Number of blocks in each stage, such as 2,2,2,2 (default: the depths of the model)")
      ->delimiter(',')
      ->group(data);
  command
      .add_option("--stem", common.stem,
                  "First layers of a ResNet: cifar, imagenet, or auto (by the size of the images)")
      ->check(one_of({"auto", "cifar", "imagenet"}))
      ->capture_default_str()
      ->group(data);
  command
      .add_option("--weights", common.weights,
                  "Safetensors file with the initial weights, such as timm's (default: random weights)")
      ->check(utf8_path())
      ->group(data);

  add_optimizer_flags(command, flags.optimizer, optimizer);

  auto& schedule = common.training.schedule;
  command
      .add_option(
          "--milestones", schedule.milestones,
          "Milestones of multistep in epochs, such as 50,75 (default: half and three quarters of --epochs)")
      ->delimiter(',')
      ->group(training);
  command
      .add_option("--gamma", schedule.gamma,
                  "Factor by which multistep multiplies the learning rate at a milestone")
      ->capture_default_str()
      ->group(training);
  command
      .add_flag("--cycle-momentum,!--no-cycle-momentum", schedule.cycle_momentum,
                "Whether onecycle also cycles the momentum (default: yes)")
      ->group(training);
  command
      .add_option(
          "--warmup-epochs", schedule.warmup_epochs,
          "Number of epochs (may be fractional) of linear warm-up of the learning rate (not with onecycle)")
      ->check(non_negative_number())
      ->capture_default_str()
      ->group(training);
  command.add_option("--epochs", common.training.epochs, "Number of epochs")
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
  command
      .add_option("--nonfinite", common.training.nonfinite, "What to do if a loss or gradient is not finite")
      ->check(one_of({"error", "skip", "ignore"}))
      ->capture_default_str()
      ->group(training);
  command
      .add_option(
          "--clip-grad", common.training.clip_grad,
          "Maximum norm of the gradient over all parameters; larger gradients are scaled down. 0 disables it")
      ->check(non_negative_number())
      ->capture_default_str()
      ->group(training);
  command
      .add_option("--accumulate", common.training.accumulate,
                  "Number of batches whose gradients are accumulated for one step")
      ->check(positive_count())
      ->capture_default_str()
      ->group(training);
  command
      .add_option(
          "--ema", common.training.ema,
          "Decay of an exponential moving average of the weights, which is also tested and saved. 0 disables "
          "it")
      ->check(number_in(0, 1))
      ->capture_default_str()
      ->group(training);
  command
      .add_option("--device", flags.device,
                  "Device: auto, cpu, or an accelerator such as cuda, cuda:1, mps or xpu")
      ->capture_default_str()
      ->group(training);
  command
      .add_option("--amp", common.training.amp, "Automatic mixed precision: bf16, or fp16 with loss scaling")
      ->check(one_of({"off", "bf16", "fp16"}))
      ->capture_default_str()
      ->group(training);
  command
      .add_flag("--channels-last,!--no-channels-last", common.channels_last,
                "Memory format of images and kernels (default: channels last)")
      ->group(training);
  command.add_option("--threads", common.threads, "Number of threads of torch")
      ->check(thread_count())
      ->capture_default_str()
      ->group(training);
  command
      .add_option(
          "--workers", common.workers,
          "Number of threads that load data (default: 1, or --threads if images are decoded from files)")
      ->check(thread_count())
      ->group(training);

  command
      .add_option("--out", flags.out,
                  "Folder for the results (default: a folder in runs/ with a name from the options)")
      ->group(output);
  command
      .add_option(
          "--log-steps", common.training.log_steps,
          "Number of steps between two lines in steps.jsonl with loss, learning rate, gradient norm and "
          "images/s. 0 disables it")
      ->check(non_negative_count())
      ->capture_default_str()
      ->group(output);
  command
      .add_flag(
          "--resume", flags.resume,
          "Continue from the results in --out. --resume DIR continues from DIR with the flags recorded there")
      ->group(output);
  command
      .add_option("--checkpoint-every", flags.checkpoint_every,
                  "Seconds between checkpoints within an epoch. A checkpoint is also saved after every epoch")
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
    std::cerr << "Warning: the data has only one class, " << data.classes.front()
              << ", so every model has an accuracy of 100 %\n";
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
