#include "lab/commands/train.h"

#include <ATen/Parallel.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <iostream>
#include <memory>

#include "lab/flags/dry_run.h"
#include "lab/flags/run_flags.h"
#include "lab/flags/validators.h"
#include "lab/text/strings.h"
#include "lab/training/interrupt.h"
#include "lab/training/progress.h"
#include "lab/training/result_folder.h"

namespace tensorion::lab {
namespace {

std::filesystem::path default_folder(const RunConfig& config) {
  return std::filesystem::path("runs") / (config.dataset + "-" + config.model + "-" + config.optimizer +
                                          "-seed" + std::to_string(config.seed));
}

void print_summary(const RunSummary& summary, const std::filesystem::path& folder) {
  const auto& last = *summary.final_epoch();
  const auto& best = *summary.best_epoch();
  std::cout
      << string_printf(
             "accuracy %.2f %% (best %.2f %% in epoch %ld), test loss %.4f, train loss %.4f; %s of training, "
             "%.0f %% in the optimizer\n",
             100 * last.test_accuracy, 100 * best.test_accuracy, best.epoch, last.test_loss, last.train_loss,
             duration(summary.seconds()).c_str(), 100 * summary.optimizer_seconds() / summary.seconds())
      << "results in " << folder.string() << '\n';
}

struct TrainOptions {
  RunFlags flags;
  std::string optimizer = "tensorion";
  std::string label;
};

void train(CLI::App& command, TrainOptions& options) {
  auto& flags = options.flags;
  flags.given = given_flags(command);
  if (!flags.config.file.empty()) apply_config(command, flags.config.file);
  const auto& name = options.label.empty() ? options.optimizer : options.label;
  const auto config = make_configs(flags, {{name, options.optimizer}}).front();
  if (printed_config(command, flags, {config})) return;
  const auto folder = result_path(flags.out.empty() ? default_folder(config) : flags.out);
  check_owner(folder, ResultKind::kRun, flags.resume);
  at::set_num_threads(static_cast<int>(config.threads));
  const auto data = load_and_warn(config);
  const Workload workload{.epochs = config.training.epochs};
  if (flags.config.dry_run) {
    print_dry_run(command, {config}, data, workload);
    return;
  }
  if (!std::filesystem::exists(folder / "summary.json")) print_plan({config}, data, workload);
  Terminal terminal(stderr);
  Progress progress(terminal, "");
  const InterruptGuard guard;
  const auto summary = run_training(config, data, run_options(flags, folder), progress);
  if (summary.diverged) {
    throw std::runtime_error("the run diverged: " + summary.reason +
                             "; the last checkpoint, if there is one, is in " + folder.string());
  }
  print_summary(summary, folder);
}

}  // namespace

void add_train(CLI::App& program) {
  const auto options = std::make_shared<TrainOptions>();
  auto* command = program.add_subcommand("train", "Train one model");
  command->add_option("--optimizer", options->optimizer, "Optimizer")
      ->check(one_of(optimizer_names()))
      ->capture_default_str()
      ->group("Optimizer");
  command
      ->add_option("--label", options->label,
                   "Name of the run in tables and reports (default: the optimizer)")
      ->group("Optimizer");
  command
      ->add_option("--seed", options->flags.common.seed,
                   "Seed for the initial weights and the order of the data")
      ->check(non_negative_count())
      ->capture_default_str()
      ->group("Training");
  add_run_flags(*command, options->flags);
  command->callback([command, options] { train(*command, *options); });
}

}  // namespace tensorion::lab
