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
#include <set>

#include "lab/commands/figures.h"
#include "lab/commands/flag_values.h"
#include "lab/commands/presets.h"
#include "lab/commands/rate_search.h"
#include "lab/commands/run_all.h"
#include "lab/text.h"
#include "lab/training/comparison.h"
#include "lab/weights/atomic_file.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct CompareOptions {
  RunFlags flags;
  std::vector<std::string> optimizers;  // empty: all of the preset, or all there are
  std::vector<int64_t> seeds = {0};
  RateSearchOptions search;
  std::string scale = "paper";
  std::string preset_name;
};

template <typename T>
void check_distinct(const std::vector<T>& values, const char* flag) {
  TORCH_CHECK_VALUE(std::set<T>(values.begin(), values.end()).size() == values.size(), flag,
                    " must not name one twice");
}

// "sgd", "name=tensorion", or a method of the preset.
Method find_method(const std::string& text, const Preset* preset) {
  std::vector<std::string> known;
  if (preset != nullptr) {
    for (const auto& [method, title, paper] : preset->methods) {
      if (method.name == text) return method;
      known.push_back(method.name);
    }
  }
  const auto equals = text.find('=');
  Method method{text.substr(0, equals), equals == std::string::npos ? text : text.substr(equals + 1)};
  const auto& names = optimizer_names();
  known.insert(known.end(), names.begin(), names.end());
  TORCH_CHECK_VALUE(std::count(names.begin(), names.end(), method.optimizer) > 0 && !method.name.empty() &&
                        method.name.find('/') == std::string::npos,
                    "--optimizers must be of ", c10::Join(", ", known), ", or NAME=OPTIMIZER, got '", text,
                    "'");
  return method;
}

std::vector<Method> find_methods(const CompareOptions& options, const Preset* preset) {
  std::vector<Method> methods;
  methods.reserve(options.optimizers.size());
  for (const auto& text : options.optimizers) methods.push_back(find_method(text, preset));
  if (methods.empty() && preset != nullptr) {
    for (const auto& method : preset->methods) methods.push_back(method.method);
  } else if (methods.empty()) {
    for (const auto& name : optimizer_names()) methods.push_back({name, name});
  }
  std::vector<std::string> names;
  names.reserve(methods.size());
  for (const auto& method : methods) names.push_back(method.name);
  check_distinct(names, "--optimizers");
  return methods;
}

// Ours and the paper's, side by side.
ResultTable preset_table(const Preset& preset, const CompareOptions& options,
                         const std::vector<OptimizerComparison>& rows,
                         const std::vector<RunConfig>& configs) {
  ResultTable table{.title = preset.title + " (scale: " + options.scale + ")",
                    .header = {"method", "paper's name", "lr", "runs", "accuracy %", "paper", "test loss",
                               "paper", "train loss", "seconds", "in optimizer", ""},
                    .rows = {},
                    .alignment = "llrrrrrrrrrl",
                    .notes = preset.notes};
  for (const auto& row : rows) {
    const auto config = std::find_if(configs.begin(), configs.end(), [&](const RunConfig& other) {
      return method_name(other) == row.optimizer;
    });
    const auto method =
        std::find_if(preset.methods.begin(), preset.methods.end(),
                     [&](const PresetMethod& other) { return other.method.name == row.optimizer; });
    const bool is_preset = method != preset.methods.end();
    const PaperResult* paper = is_preset && method->paper ? &*method->paper : nullptr;
    table.rows.push_back(
        {row.optimizer, is_preset ? method->title : "-", format("%.3g", config->optimizer_options.lr()),
         std::to_string(row.runs), cell(row.test_accuracy, 2, 100),
         paper != nullptr ? format("%.2f +- %.2f", paper->accuracy, paper->accuracy_std) : "-",
         cell(row.test_loss, 3),
         paper != nullptr ? format("%.3f +- %.3f", paper->loss, paper->loss_std) : "-",
         cell(row.train_loss, 3), cell(row.seconds, 1), cell(row.optimizer_seconds, 1),
         row.diverged > 0 ? std::to_string(row.diverged) + " diverged" : ""});
  }
  if (options.scale != "paper") {
    table.notes.push_back("(the paper's numbers are of its own scale: " + options.scale +
                          " is not comparable with them)");
  }
  return table;
}

void run_comparison(CLI::App& command, CompareOptions& options, const Preset* preset) {
  if (preset != nullptr) {
    set_missing(command, preset->scale(options.scale));
    set_missing(command, preset->flags);
  }
  check_distinct(options.seeds, "--seeds");
  auto configs = make_configs(options.flags, find_methods(options, preset));
  const auto& common = options.flags.common;
  at::set_num_threads(static_cast<int>(common.threads));
  auto folder = options.flags.out;
  if (folder.empty()) {
    folder = fs::path("runs") /
             (preset != nullptr ? preset->name : "compare-" + common.dataset + "-" + common.model);
  }

  const auto data = load_data(configs.front());
  ordered_json searched;
  if (options.search.wanted) {
    const auto found = search_rates(configs, data, options.flags, options.search, folder.string() + "-grid");
    print_table(std::cout, search_table(found, options.search.lrs));
    searched = to_json(found, options.search.lrs);
  }
  std::vector<RunConfig> runs;
  for (const int64_t seed : options.seeds) {
    for (auto config : configs) {
      config.seed = seed;
      runs.push_back(std::move(config));
    }
  }
  const auto summaries = run_all(runs, data, options.flags, folder);
  for (const auto& summary : summaries) {
    if (summary.diverged) std::cout << summary.identity.run << " diverged: " << summary.reason << '\n';
  }
  const auto rows = compare(summaries);
  auto summary = to_json(rows, summaries);
  if (!searched.is_null()) summary["grid"] = searched;
  if (preset == nullptr) {
    write_file(folder / "summary.json", summary.dump(2) + '\n');
    print_comparison(std::cout, rows);
    std::cout << "results in " << folder.string() << '\n';
    return;
  }
  const auto table = preset_table(*preset, options, rows, configs);
  summary["preset"] = preset->name;
  summary["scale"] = options.scale;
  summary["table"] = to_json(table);
  write_file(folder / "summary.json", summary.dump(2) + '\n');
  print_table(std::cout, table);
  draw_figures(folder);
}

// The flags of both commands.
void add_comparison_flags(CLI::App& command, CompareOptions& options) {
  add_scale(command, options.scale);
  command
      .add_option(
          "--optimizers", options.optimizers,
          "Optimizers: sgd, adamw, muon, tensorion (or a preset's methods), NAME=OPTIMIZER for one under "
          "another name (default: all)")
      ->delimiter(',')
      ->group("Optimizer");
  command.add_option("--seeds", options.seeds, "Seeds: a run of every optimizer for each")
      ->delimiter(',')
      ->check(non_negative_count())
      ->capture_default_str()
      ->group("Training");
  add_rate_search_flags(command, options.search);
  add_run_flags(command, options.flags);
}

}  // namespace

void add_compare(CLI::App& program) {
  const auto options = std::make_shared<CompareOptions>();
  auto* command =
      program.add_subcommand("compare", "Compare optimizers on the same data, from the same weights");
  std::vector<std::string> names;
  for (const auto& preset : comparison_presets()) names.push_back(preset.name);
  command->add_option("--preset", options->preset_name, "An experiment of the paper")
      ->check(CLI::IsMember(names));
  add_comparison_flags(*command, *options);
  command->get_option("--scale")->needs("--preset");
  command->callback([command, options] {
    const auto& presets = comparison_presets();
    const auto preset = std::find_if(presets.begin(), presets.end(),
                                     [&](const Preset& other) { return other.name == options->preset_name; });
    run_interruptible(
        [&] { run_comparison(*command, *options, preset == presets.end() ? nullptr : &*preset); });
  });
}

void add_ablation(CLI::App& program) {
  const auto options = std::make_shared<CompareOptions>();
  auto* command = program.add_subcommand(
      "ablation", "Compare all unfoldings of the kernels, as the paper does on CIFAR-10 with ResNet-18");
  add_comparison_flags(*command, *options);
  command->callback([command, options] {
    run_interruptible([&] { run_comparison(*command, *options, &ablation_preset()); });
  });
}

}  // namespace tensorion::lab
