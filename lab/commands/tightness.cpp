#include "lab/commands/tightness.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "lab/experiments/convolution_norms.h"
#include "lab/experiments/deviations.h"
#include "lab/experiments/figures.h"
#include "lab/experiments/presets.h"
#include "lab/experiments/tightness.h"
#include "lab/flags/dry_run.h"
#include "lab/flags/run_flags.h"
#include "lab/flags/validators.h"
#include "lab/io/atomic_file.h"
#include "lab/io/json_file.h"
#include "lab/io/safetensors.h"
#include "lab/text/usage_error.h"
#include "lab/training/interrupt.h"
#include "lab/training/progress.h"
#include "lab/training/result_folder.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr char kMethod[] = "tensorion-sgd";

struct TightnessOptions {
  RunFlags flags;
  std::string scale = "paper";
  int64_t every = 1;
  int64_t starts = 8;
  ConvolutionOptions convolution;
};

// Measures the momenta of the kernels at regular intervals and stores the measurements in a file, so that an
// interrupted run can be resumed.
class Collector : public TrainingObserver {
 public:
  Collector(const TightnessOptions& options, fs::path file, TrainingObserver& progress)
      : options_(options), file_(std::move(file)), progress_(progress) {
    if (!options.flags.resume || !fs::exists(file_)) return;
    read_json_lines(file_,
                    [&](const nlohmann::json& value) { collected_.push_back(tightness_from_json(value)); });
  }

  void after_step(const Trainer& trainer) override {
    progress_.after_step(trainer);
    const int64_t step = trainer.step();
    if (step % options_.every == 0) collect(trainer, step);
  }
  void before_test(const Trainer& trainer) override { progress_.before_test(trainer); }
  void after_epoch(const Trainer& trainer) override { progress_.after_epoch(trainer); }

  const std::vector<Tightness>& collected() const { return collected_; }

 private:
  void collect(const Trainer& trainer, int64_t step) {
    // A resumed run repeats the measurements that were made after its checkpoint.
    std::erase_if(collected_, [&](const Tightness& value) { return value.step >= step; });
    for (const auto& parameter : trainer.model().named_parameters()) {
      const auto& tensor = parameter.value();
      const auto state = trainer.optimizer().state().find(tensor.unsafeGetTensorImpl());
      if (effective_order(tensor.sizes()) < 3 || state == trainer.optimizer().state().end()) continue;
      const auto& momentum = static_cast<const TensorionParamState&>(*state->second).momentum_buffer();
      if (!momentum.defined() || !momentum.any().item<bool>()) continue;
      auto value = measure_tightness(momentum, options_.starts);
      value.step = step;
      value.layer = parameter.key();
      collected_.push_back(std::move(value));
    }
    std::string lines;
    for (const auto& value : collected_) lines += to_json(value).dump() + '\n';
    write_file(file_, lines);
  }

  const TightnessOptions& options_;
  fs::path file_;
  TrainingObserver& progress_;
  std::vector<Tightness> collected_;
};

// The flags of the paper's run, which is a run of the preset cifar10.
FlagValues default_values(const std::string& scale) {
  const auto& preset = comparison_presets().front();
  auto values = preset.scale(scale);
  values.insert(values.end(), preset.flags.begin(), preset.flags.end());
  std::erase_if(values, [](const auto& value) { return value.first == "--seeds"; });
  values.emplace_back("--every", scale == "paper" ? "391" : scale == "small" ? "20" : "5");
  return values;
}

Method default_method(const std::string& scale) {
  const auto& preset = comparison_presets().front();
  return preset.method(*preset.find_method(kMethod), scale);
}

void show_help_defaults(CLI::App& command, const TightnessOptions& options) {
  show_defaults(command, default_values(options.scale));
  show_optimizer_defaults(command, {default_method(options.scale)});
}

void run_tightness(CLI::App& command, TightnessOptions& options) {
  options.flags.given = given_flags(command);
  if (!options.flags.config.file.empty()) apply_config(command, options.flags.config.file);
  set_missing(command, default_values(options.scale));
  auto config = make_configs(options.flags, {default_method(options.scale)}).front();
  config.deviations = deviations(comparison_presets().front(), {config});
  if (printed_config(command, options.flags, {config})) return;
  const auto folder = result_path(options.flags.out.empty() ? "runs/tightness" : options.flags.out);
  check_owner(folder, ResultKind::kTightness, options.flags.resume);
  check_owner(folder / "run", ResultKind::kRun, options.flags.resume);
  at::set_num_threads(static_cast<int>(config.threads));
  const auto data = load_and_warn(config);
  const Workload workload{.epochs = config.training.epochs};
  if (options.flags.config.dry_run) {
    print_dry_run(command, {config}, data, workload);
    return;
  }
  const int64_t steps = config.training.epochs * train_loader(config, data).batches();
  if (options.every > steps) {
    throw UsageError(
        c10::str("--every must be at most ", steps, ", the number of steps of the run, got ", options.every));
  }
  if (!fs::exists(folder / "summary.json")) print_plan({config}, data, workload);
  const InterruptGuard guard;
  Terminal terminal(stderr);
  Progress progress(terminal, "");
  fs::create_directories(folder);
  write_config(command, options.flags, {config}, folder);
  Collector collector(options, folder / "metrics.jsonl", progress);
  const auto summary = run_training(config, data, run_options(options.flags, folder / "run"), collector);
  if (summary.diverged) throw std::runtime_error("the run diverged: " + summary.reason);
  TORCH_CHECK_VALUE(!collector.collected().empty(),
                    "no momentum was measured, because the model has no kernels");

  const auto kernels = read_safetensors(folder / "run" / "weights.safetensors").tensors;
  const auto convolutions = convolution_norms(kernels, options.convolution);
  std::vector<ResultTable> tables{tightness_table(collector.collected()), layer_table(collector.collected()),
                                  convolution_table(convolutions, options.convolution)};
  auto& notes = tables.front().notes;
  notes.emplace_back("Deviations from the paper, and our choices where it does not specify a value:");
  for (const auto& sentence : config.deviations) notes.push_back("- " + sentence);
  auto settings = to_json(config);
  settings["scale"] = options.scale;
  settings["every"] = options.every;
  settings["starts"] = options.starts;
  ordered_json out{{"experiment", "tightness"}, {"config", settings}, {"run", to_json(summary)}};
  for (const auto& norms : convolutions) out["convolutions"].push_back(to_json(norms));
  for (const auto& table : tables) {
    out["tables"].push_back(to_json(table));
    print_table(std::cout, table);
  }
  write_json(folder / "summary.json", out);
  draw_figures(folder);
}

}  // namespace

void add_tightness(CLI::App& program) {
  const auto options = std::make_shared<TightnessOptions>();
  auto* command = program.add_subcommand(
      "tightness",
      "Measure how tight the relaxation and the balanced unfolding are on momenta of a training run");
  add_scale(*command, options->scale);
  command->add_option("--every", options->every, "Number of steps between two measurements")
      ->check(positive_count());
  command
      ->add_option("--starts", options->starts, "Number of random starts of the power method for ||X||_sigma")
      ->check(positive_count())
      ->capture_default_str();
  command
      ->add_option("--convolution-size", options->convolution.size,
                   "Height and width of the inputs for the norms of the trained kernels as convolutions")
      ->check(positive_count())
      ->capture_default_str();
  command
      ->add_option("--certify", options->convolution.certified,
                   "Certify the relaxed norm of trained kernels with at most this many elements")
      ->check(non_negative_count())
      ->capture_default_str();
  command
      ->add_option("--seed", options->flags.common.seed,
                   "Seed for the initial weights and the order of the data")
      ->check(non_negative_count())
      ->capture_default_str()
      ->group("Training");
  add_run_flags(*command, options->flags);
  command->callback([command, options] { run_tightness(*command, *options); });
  before_help(*command, [command, options] { show_help_defaults(*command, *options); });
}

}  // namespace tensorion::lab
