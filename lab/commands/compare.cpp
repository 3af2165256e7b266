#include "lab/commands/compare.h"

#include <ATen/Parallel.h>
#include <c10/util/StringUtil.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "lab/experiments/compare_results.h"
#include "lab/experiments/deviations.h"
#include "lab/flags/dry_run.h"
#include "lab/flags/validators.h"
#include "lab/text/nearest.h"
#include "lab/text/usage_error.h"
#include "lab/training/interrupt.h"
#include "lab/training/result_folder.h"
#include "lab/training/run_all.h"
#include "lab/training/workers.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

template <typename T>
void check_distinct(const std::vector<T>& values, const char* flag) {
  if (std::set<T>(values.begin(), values.end()).size() != values.size())
    throw UsageError(std::string(flag) + " must not contain a value twice");
}

// `text` is an optimizer such as "sgd", a named optimizer such as "name=tensorion", or a method of the
// preset.
Method find_method(const std::string& text, const Preset* preset, const std::string& scale) {
  std::vector<std::string> known;
  if (preset != nullptr) {
    if (const auto* method = preset->find_method(text)) return preset->method(*method, scale);
    for (const auto& method : preset->methods) known.push_back(method.method.name);
  }
  const auto equals = text.find('=');
  Method method{text.substr(0, equals), equals == std::string::npos ? text : text.substr(equals + 1)};
  const auto& names = optimizer_names();
  known.insert(known.end(), names.begin(), names.end());
  TORCH_CHECK_VALUE(std::count(names.begin(), names.end(), method.optimizer) > 0 && !method.name.empty() &&
                        method.name.find('/') == std::string::npos,
                    "--optimizers must be from ", c10::Join(", ", known), ", or NAME=OPTIMIZER, got '", text,
                    "'");
  return method;
}

std::vector<Method> find_methods(const CompareOptions& options, const Preset* preset) {
  std::vector<Method> methods;
  methods.reserve(options.optimizers.size());
  for (const auto& text : options.optimizers) methods.push_back(find_method(text, preset, options.scale));
  if (methods.empty() && preset != nullptr) {
    for (const auto& method : preset->methods) methods.push_back(preset->method(method, options.scale));
  } else if (methods.empty()) {
    for (const auto& name : optimizer_names()) methods.push_back({name, name});
  }
  std::vector<std::string> names;
  names.reserve(methods.size());
  for (const auto& method : methods) names.push_back(method.name);
  check_distinct(names, "--optimizers");
  return methods;
}

std::vector<RunConfig> each_seed(const std::vector<RunConfig>& configs, const std::vector<int64_t>& seeds) {
  std::vector<RunConfig> runs;
  for (const int64_t seed : seeds) {
    for (auto config : configs) {
      config.seed = seed;
      runs.push_back(std::move(config));
    }
  }
  return runs;
}

bool has_method(const std::vector<RunConfig>& configs, const std::string& name) {
  return std::any_of(configs.begin(), configs.end(),
                     [&](const RunConfig& config) { return method_name(config) == name; });
}

void check_reference(const CompareOptions& options, const std::vector<RunConfig>& configs) {
  std::vector<std::string> names;
  for (const auto& config : configs) names.push_back(method_name(config));
  if (!has_method(configs, options.reference)) {
    throw UsageError("--reference must be one of the compared methods, " + c10::Join(", ", names) +
                     ", got '" + options.reference + "'" + did_you_mean(options.reference, names));
  }
}

// The runs and epochs of each method, including the search. The counts are upper bounds for methods without a
// fallback, because the search skips the second grid for them.
Workload workload_of(const CompareOptions& options) {
  const int64_t epochs = options.flags.common.training.epochs;
  const auto seeds = static_cast<int64_t>(options.seeds.size());
  Workload workload{.runs = seeds, .epochs = seeds * epochs};
  if (!options.grid) return workload;
  const auto searched = static_cast<int64_t>(options.search.lrs.size() + options.search.fallback_lrs.size());
  workload.runs += searched;
  workload.epochs += searched * options.search.epochs.value_or(epochs);
  return workload;
}

// Adds --grid and the flags that require it.
void add_rate_search_flags(CLI::App& command, CompareOptions& options) {
  const std::string group = "Learning rate search";
  command
      .add_flag("--grid", options.grid,
                "First search the learning rate of every method on the same grid, by the accuracy on samples "
                "that are "
                "held out from the training set (--validation)")
      ->group(group);
  command.add_option("--grid-lrs", options.search.lrs, "Learning rates of the grid")
      ->delimiter(',')
      ->check(positive_number())
      ->capture_default_str()
      ->needs("--grid")
      ->group(group);
  command
      .add_option("--grid-fallback-lrs", options.search.fallback_lrs,
                  "Values for a second search: --fallback-lr at the best --lr, for every method that has a "
                  "fallback (default: no second search)")
      ->delimiter(',')
      ->check(positive_number())
      ->needs("--grid")
      ->group(group);
  command
      .add_option("--grid-epochs", options.search.epochs,
                  "Number of epochs of the runs of the search (default: --epochs)")
      ->check(positive_count())
      ->needs("--grid")
      ->group(group);
  command.add_option("--grid-seed", options.search.seed, "Seed of the runs of the search")
      ->check(non_negative_count())
      ->capture_default_str()
      ->needs("--grid")
      ->group(group);
}

}  // namespace

void run_comparison(CLI::App& command, CompareOptions& options, const Preset* preset) {
  const bool has_reference = !options.reference.empty();
  if (preset != nullptr) {
    set_missing(command, preset->scale(options.scale));
    set_missing(command, preset->flags);
  }
  check_distinct(options.seeds, "--seeds");
  auto& threads = options.flags.common.threads;
  if (command.get_option("--threads")->empty()) threads = std::max<int64_t>(1, threads / options.jobs);
  // A search must not use the test set.
  auto& validation = options.flags.common.data.validation;
  if (options.grid && !validation) validation = 0;
  auto configs = make_configs(options.flags, checked_usage([&] { return find_methods(options, preset); }));
  if (has_reference) {
    check_reference(options, configs);
  } else if (!has_method(configs, options.reference)) {
    options.reference.clear();  // the preset's reference is not among the methods
  }
  if (printed_config(command, options.flags, configs)) return;
  const auto& common = options.flags.common;
  at::set_num_threads(static_cast<int>(common.threads));
  auto folder = options.flags.out;
  if (folder.empty()) {
    folder = fs::path("runs") /
             (preset != nullptr ? preset->name : "compare-" + common.dataset + "-" + common.model);
  }
  folder = result_path(folder);
  auto runs_options = run_options(options.flags, folder);
  auto grid_options = run_options(options.flags, folder.string() + "-grid");
  check_folders(each_seed(configs, options.seeds), runs_options);
  if (options.grid) check_folders(search_runs(configs, options.search), grid_options, method_name);

  const auto data = load_and_warn(configs.front());
  const auto workload = workload_of(options);
  if (options.flags.config.dry_run) {
    print_dry_run(command, configs, data, workload);
    return;
  }
  const auto runs = each_seed(configs, options.seeds);
  const auto is_over = [&](const RunConfig& run) {
    return fs::exists(folder / seed_name(run) / "summary.json");
  };
  const bool has_work = !std::all_of(runs.begin(), runs.end(), is_over);
  if (has_work && !options.is_worker) print_plan(configs, data, workload);
  const InterruptGuard guard;
  if (!options.grid) check_runs(runs, data, runs_options);  // otherwise the search sets the learning rates
  fs::create_directories(folder);
  write_config(command, options.flags, configs, folder);
  std::optional<Workers> workers;
  if (options.jobs > 1 && has_work) {
    workers.emplace(options.jobs - 1,
                    std::vector<std::string>{"--jobs", "1", "--threads", std::to_string(common.threads),
                                             "--resume", "--worker"});
    runs_options.resume = grid_options.resume = true;
  }
  runs_options.shared = grid_options.shared = workers || options.is_worker;
  ordered_json searched;
  if (options.grid) {
    const auto found = search_rates(configs, data, options.search, grid_options);
    for (const auto& table : search_tables(found, options.search)) print_table(std::cout, table);
    searched = to_json(found, options.search);
  }
  std::vector<std::string> all_deviations;
  if (preset != nullptr) {
    all_deviations = deviations(*preset, configs);
    for (auto& config : configs) config.deviations = deviations(*preset, {config});
  }
  // With --grid, the learning rates are those that the search found.
  run_all(each_seed(configs, options.seeds), data, runs_options);
  if (options.is_worker) return;
  if (workers) workers->wait();  // the workers also write summary.json
  write_results({.folder = folder,
                 .config = configs.front(),
                 .test_samples = data.test.count(),
                 .reference = options.reference,
                 .search = searched,
                 .preset = preset,
                 .scale = options.scale,
                 .deviations = all_deviations});
}

void add_comparison_flags(CLI::App& command, CompareOptions& options) {
  add_scale(command, options.scale);
  command
      .add_option(
          "--optimizers", options.optimizers,
          "Optimizers to compare: sgd, adamw, muon, tensorion, or the methods of the preset. NAME=OPTIMIZER "
          "gives an optimizer another name (default: all)")
      ->delimiter(',')
      ->group("Optimizer");
  command.add_option("--seeds", options.seeds, "Seeds. Every optimizer has one run for each seed")
      ->delimiter(',')
      ->check(non_negative_count())
      ->capture_default_str()
      ->group("Training");
  command
      .add_option("--jobs", options.jobs,
                  "Number of runs at a time, each in its own process with --threads threads (by default, the "
                  "processes share the cores)")
      ->check(positive_count())
      ->capture_default_str()
      ->take_last()
      ->group("Training");
  command.add_flag("--worker", options.is_worker, "")->group("");  // --jobs starts processes with this flag
  command
      .add_option("--reference", options.reference,
                  "Method with which the others are compared: shows the differences of the test accuracies, "
                  "paired by seed, with 95 % confidence intervals")
      ->group("Output");
  add_rate_search_flags(command, options);
  add_run_flags(command, options.flags);
  command.get_option("--threads")->take_last();
  command.get_option("--grid")->excludes("--lr");
}

void show_preset_defaults(CLI::App& command, const CompareOptions& options, const Preset& preset) {
  auto values = preset.scale(options.scale);
  values.insert(values.end(), preset.flags.begin(), preset.flags.end());
  show_defaults(command, values);
  show_optimizer_defaults(command, checked_usage([&] { return find_methods(options, &preset); }));
}

namespace {

const Preset* find_preset(const std::string& name) {
  const auto& presets = comparison_presets();
  const auto preset =
      std::find_if(presets.begin(), presets.end(), [&](const Preset& other) { return other.name == name; });
  return preset == presets.end() ? nullptr : &*preset;
}

}  // namespace

void add_compare(CLI::App& program) {
  const auto options = std::make_shared<CompareOptions>();
  auto* command = program.add_subcommand(
      "compare", "Compare optimizers on the same data, starting from the same weights");
  std::vector<std::string> names;
  for (const auto& preset : comparison_presets()) names.push_back(preset.name);
  command
      ->add_option("--preset", options->preset_name,
                   "An experiment of the paper, or unfoldings, which compares unfoldings under one protocol")
      ->check(one_of(names));
  add_comparison_flags(*command, *options);
  command->callback([command, options] {
    options->flags.given = given_flags(*command);
    if (!options->flags.config.file.empty()) apply_config(*command, options->flags.config.file);
    if (!command->get_option("--scale")->empty() && options->preset_name.empty())
      throw UsageError("--scale requires --preset");
    run_comparison(*command, *options, find_preset(options->preset_name));
  });
  before_help(*command, [command, options] {
    if (const auto* preset = find_preset(options->preset_name))
      show_preset_defaults(*command, *options, *preset);
  });
}

}  // namespace tensorion::lab
