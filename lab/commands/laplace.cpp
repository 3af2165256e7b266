#include "lab/commands/laplace.h"

#include <ATen/Parallel.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "lab/experiments/figures.h"
#include "lab/experiments/laplace_record.h"
#include "lab/experiments/laplace_study.h"
#include "lab/experiments/laplace_summary.h"
#include "lab/flags/config_flags.h"
#include "lab/flags/flag_values.h"
#include "lab/flags/validators.h"
#include "lab/io/json_file.h"
#include "lab/io/toml_file.h"
#include "lab/text/strings.h"
#include "lab/text/usage_error.h"
#include "lab/training/interrupt.h"
#include "lab/training/progress.h"
#include "lab/training/result_folder.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct LaplaceFlags {
  ConfigFlags config;
  std::string scale = "paper";
  std::vector<std::string> problems;
  std::string dtype = "float64";
  LaplaceStudy study = {
      .problems = {}, .optimizers = laplace_optimizers(), .budgets = {}, .grid = {}, .options = {}};
  int64_t threads = 1;
  fs::path out = "runs/laplace";
  bool resume = false;
};

// The paper specifies neither sizes nor learning rates, so these values are our choice.
FlagValues scale_values(const std::string& scale) {
  const std::string lrs = "1e-5,3e-5,1e-4,3e-4,1e-3,3e-3,1e-2,3e-2,0.1,0.3,1";
  if (scale == "paper") {
    return {{"--problems", "10x32x4,10x32x8,10x64x8,20x32x8"},
            {"--lrs", lrs},
            {"--seeds", "0,1,2"},
            {"--steps", "2000"}};
  }
  if (scale == "small") {
    return {{"--problems", "10x32x8"}, {"--lrs", lrs}, {"--seeds", "0,1,2"}, {"--steps", "1000"}};
  }
  return {{"--problems", "4x8x3"}, {"--lrs", "1e-3,1e-2,0.1"}, {"--seeds", "0"}, {"--steps", "200"}};
}

ordered_json to_json(const LaplaceFlags& flags) {
  const auto& study = flags.study;
  return {{"scale", flags.scale},
          {"problems", flags.problems},
          {"optimizers", study.optimizers},
          {"lrs", study.grid.lrs},
          {"extend_lrs", study.grid.extensions},
          {"seeds", study.grid.seeds},
          {"steps", study.budgets},
          {"schedule", study.options.schedule.name},
          {"momentum", study.options.momentum},
          {"sgd_momentum", study.options.sgd_momentum},
          {"polar", study.options.polar},
          {"dtype", flags.dtype},
          {"threads", flags.threads}};
}

// The options that a resumed command may not change. It may add runs.
ordered_json fixed_options(const LaplaceFlags& flags) {
  auto out = to_json(flags);
  for (const auto* key :
       {"scale", "problems", "optimizers", "lrs", "extend_lrs", "seeds", "steps", "threads"}) {
    out.erase(key);
  }
  return out;
}

void check_folder(const LaplaceFlags& flags) {
  check_owner(flags.out, ResultKind::kLaplace, flags.resume);
  const auto path = flags.out / "config.json";
  if (!fs::exists(path)) return;
  const auto now = fixed_options(flags);
  read_json(path, [&](const nlohmann::json& recorded) {
    for (const auto& [key, value] : now.items()) {
      TORCH_CHECK_VALUE(recorded.value(key, nlohmann::json()) == nlohmann::json(value), flags.out.string(),
                        " was started with other options: ", key, " ",
                        recorded.value(key, nlohmann::json()).dump(), ", got ", value.dump());
    }
  });
}

void print_dry_run(const CLI::App& command, const LaplaceStudy& study) {
  const LaplaceCosts costs(study);
  std::cout << to_toml(resolved_flags(command, {})) << '\n';
  print_table(std::cout, cost_table(study, costs));
  std::cout << study.runs() << " runs, about " << duration(costs.seconds(study, LaplaceRecord({})))
            << ", not counting learning rates beyond the grid; nothing was run or written (--dry-run)\n";
}

void run_laplace(const CLI::App& command, LaplaceFlags& flags) {
  auto& study = flags.study;
  checked_usage([&] {
    for (const auto& text : flags.problems) study.problems.push_back(LaplaceProblem::parse(text));
    TensorionOptions().momentum(study.options.momentum).polar(study.options.polar).check();
    TensorionOptions().fallback_momentum(study.options.sgd_momentum).check();
  });
  if (flags.config.print) {
    std::cout << to_toml(resolved_flags(command, {}));
    return;
  }
  study.options.dtype = flags.dtype == "float32" ? at::kFloat : at::kDouble;
  at::set_num_threads(static_cast<int>(flags.threads));
  if (flags.config.dry_run) {
    print_dry_run(command, study);
    return;
  }
  flags.out = result_path(flags.out);
  check_folder(flags);
  const InterruptGuard guard;
  fs::create_directories(flags.out);
  const FolderLock lock(flags.out);
  write_json(flags.out / "config.json", to_json(flags));
  LaplaceRecord record(flags.out / "metrics.jsonl");
  std::cerr << string_printf(
      "%zu runs: %zu problems, %zu budgets, %zu optimizers, %zu learning rates, %zu seeds; about %s\n",
      study.runs(), study.problems.size(), study.budgets.size(), study.optimizers.size(),
      study.grid.lrs.size(), study.grid.seeds.size(),
      duration(LaplaceCosts(study).seconds(study, record)).c_str());

  auto results = ordered_json::array();
  std::vector<ResultTable> tables;
  {
    LaplaceRunner runner(study, record);
    for (const auto& problem : study.problems) {
      const auto sweeps = runner.sweep(problem);
      results.push_back(to_json(problem, sweeps));
      tables.push_back(laplace_table(problem, sweeps));
    }
  }
  tables.back().notes = {
      "(error: (x'Ax / x'x - eigenvalue) / eigenvalue; residual: ||Ax - (x'Ax / x'x) x|| / (eigenvalue "
      "||x||); both are geometric means over the seeds at the learning rate with the smallest error)",
      "(seconds: time of the steps of the fastest seed)",
      "(the paper shows this experiment in figures only, so there are no numbers to compare with)"};
  ordered_json summary{{"experiment", "laplace"}, {"config", to_json(flags)}, {"problems", results}};
  for (const auto& table : tables) {
    summary["tables"].push_back(to_json(table));
    print_table(std::cout, table);
  }
  write_json(flags.out / "summary.json", summary);
  draw_figures(flags.out);
}

}  // namespace

void add_laplace(CLI::App& program) {
  const auto flags = std::make_shared<LaplaceFlags>();
  auto* command = program.add_subcommand(
      "laplace", "Compute the smallest eigenpair of a high-dimensional Laplacian in tensor-train form");
  auto& study = flags->study;
  add_config_flags(*command, flags->config);
  add_dry_run_flag(*command, flags->config);
  command->get_option("--dry-run")
      ->description("Print all options and the time of a step and of all runs, without running");
  add_scale(*command, flags->scale);
  command
      ->add_option("--problems", flags->problems,
                   "Problems as dimensions x points x rank, such as 10x32x8,20x32x8")
      ->delimiter(',');
  command->add_option("--optimizers", study.optimizers, "Optimizers")
      ->delimiter(',')
      ->check(one_of(laplace_optimizers()))
      ->capture_default_str();
  command->add_option("--lrs", study.grid.lrs, "Learning rates")->delimiter(',')->check(positive_number());
  command
      ->add_option("--extend-lrs", study.grid.extensions,
                   "Maximum number of learning rates to try beyond the edge of --lrs while the best one is "
                   "at the edge")
      ->check(non_negative_count())
      ->capture_default_str();
  command
      ->add_option("--seeds", study.grid.seeds, "Seeds of the random tensor trains from which the runs start")
      ->delimiter(',')
      ->check(non_negative_count());
  command
      ->add_option(
          "--steps", study.budgets,
          "Number of steps of a run. Several numbers are budgets, each with its own runs and schedule")
      ->delimiter(',')
      ->check(positive_count());
  command->add_option("--schedule", study.options.schedule.name, "Learning rate schedule")
      ->check(one_of({"constant", "cosine"}))
      ->capture_default_str();
  command->add_option("--momentum", study.options.momentum, "Momentum of tensorion, online and muon")
      ->capture_default_str();
  command->add_option("--sgd-momentum", study.options.sgd_momentum, "Momentum of sgd-momentum")
      ->capture_default_str();
  command
      ->add_option("--polar", study.options.polar,
                   "Method of the polar factor: auto, halley, newton_schulz, svd")
      ->capture_default_str();
  command->add_option("--dtype", flags->dtype, "Data type of the cores and of the computation")
      ->check(one_of({"float64", "float32"}))
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "Number of threads of torch")
      ->check(thread_count())
      ->capture_default_str();
  command->add_option("--out", flags->out, "Folder for the results")->capture_default_str();
  command->add_flag("--resume", flags->resume, "Keep the finished runs in --out and add the missing ones");
  before_help(*command, [command, flags] { show_defaults(*command, scale_values(flags->scale)); });
  command->callback([command, flags] {
    if (!flags->config.file.empty()) apply_config(*command, flags->config.file);
    set_missing(*command, scale_values(flags->scale));
    run_laplace(*command, *flags);
  });
}

}  // namespace tensorion::lab
