#include "lab/commands/laplace.h"

#include <ATen/Parallel.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "lab/commands/figures.h"
#include "lab/commands/flag_values.h"
#include "lab/experiments/laplace_sweep.h"
#include "lab/screen.h"
#include "lab/text.h"
#include "lab/weights/atomic_file.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct LaplaceFlags {
  std::string scale = "paper";
  std::vector<std::string> problems;
  std::vector<std::string> optimizers = laplace_optimizers();
  std::vector<double> lrs;
  std::vector<int64_t> seeds;
  std::string dtype = "float64";
  LaplaceOptions options;
  int64_t threads = 1;
  fs::path out = "runs/laplace";
};

// The paper names neither sizes nor learning rates: these are ours.
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
  return {{"scale", flags.scale},
          {"problems", flags.problems},
          {"optimizers", flags.optimizers},
          {"lrs", flags.lrs},
          {"seeds", flags.seeds},
          {"steps", flags.options.steps},
          {"schedule", flags.options.schedule.name},
          {"momentum", flags.options.momentum},
          {"sgd_momentum", flags.options.sgd_momentum},
          {"polar", flags.options.polar},
          {"dtype", flags.dtype},
          {"threads", flags.threads}};
}

// One line of metrics.jsonl for each recorded step.
std::string metrics_lines(const LaplaceProblem& problem, const LaplaceRun& run) {
  std::string lines;
  for (const auto& point : run.points) {
    ordered_json line{
        {"problem", problem.str()}, {"optimizer", run.optimizer}, {"lr", run.lr}, {"seed", run.seed}};
    line.update(to_json(point));
    lines += line.dump() + '\n';
  }
  return lines;
}

void run_laplace(const LaplaceFlags& flags) {
  std::vector<LaplaceProblem> problems;
  for (const auto& text : flags.problems) problems.push_back(LaplaceProblem::parse(text));
  TORCH_CHECK_VALUE(!fs::exists(flags.out / "summary.json"), flags.out.string(),
                    " already has results: choose another folder (--out)");
  at::set_num_threads(static_cast<int>(flags.threads));
  fs::create_directories(flags.out);
  auto options = flags.options;
  options.dtype = flags.dtype == "float32" ? at::kFloat : at::kDouble;

  Screen screen(stderr);
  const size_t runs = problems.size() * flags.optimizers.size() * flags.lrs.size() * flags.seeds.size();
  size_t count = 0;
  std::string metrics;
  auto results = ordered_json::array(), tables = ordered_json::array();
  std::vector<ResultTable> printed;
  for (const auto& problem : problems) {
    std::vector<LaplaceSweep> sweeps;
    for (const auto& optimizer : flags.optimizers) {
      sweeps.push_back(
          sweep_rates(problem, optimizer, flags.lrs, flags.seeds, options, [&](const LaplaceRun& run) {
            metrics += metrics_lines(problem, run);
            ++count;
            if (screen.is_terminal()) {
              screen.show({format("run %zu of %zu: %s, %s, lr %.3g: error %.2e", count, runs,
                                  problem.str().c_str(), optimizer.c_str(), run.lr, run.final_error())});
            }
          }));
      const auto* best = sweeps.back().best();
      screen.print(
          problem.str() + ", " + optimizer + ": " +
          (best == nullptr ? "all diverged" : format("best lr %.3g, error %.2e", best->lr, best->error)));
    }
    printed.push_back(laplace_table(problem, sweeps));
    results.push_back(to_json(problem, sweeps));
    tables.push_back(to_json(printed.back()));
  }
  if (screen.is_terminal()) screen.show({});
  printed.back().notes = {
      "(error: (x'Ax / x'x - eigenvalue) / eigenvalue; residual: ||Ax - (x'Ax / x'x) x|| / (eigenvalue "
      "||x||); at the "
      "learning rate of the smallest error, geometric means over the seeds)",
      "(the paper shows this experiment in figures only: it has no numbers to set beside)"};
  tables.back() = to_json(printed.back());
  write_file(flags.out / "metrics.jsonl", metrics);
  const ordered_json summary{
      {"experiment", "laplace"}, {"config", to_json(flags)}, {"problems", results}, {"tables", tables}};
  write_file(flags.out / "summary.json", summary.dump(2) + '\n');
  for (const auto& table : printed) print_table(std::cout, table);
  draw_figures(flags.out);
}

}  // namespace

void add_laplace(CLI::App& program) {
  const auto flags = std::make_shared<LaplaceFlags>();
  flags->threads = at::get_num_threads();
  auto* command = program.add_subcommand(
      "laplace",
      "The smallest eigenpair of a Laplacian in many dimensions, over the cores of a tensor train");
  add_scale(*command, flags->scale);
  command->add_option("--problems", flags->problems, "Dimensions x points x rank: 10x32x8,20x32x8")
      ->delimiter(',');
  command->add_option("--optimizers", flags->optimizers, "Optimizers")
      ->delimiter(',')
      ->check(CLI::IsMember(laplace_optimizers()))
      ->capture_default_str();
  command->add_option("--lrs", flags->lrs, "Learning rates")->delimiter(',')->check(CLI::PositiveNumber);
  command->add_option("--seeds", flags->seeds, "Seeds of the train to start from")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber);
  command->add_option("--steps", flags->options.steps, "Steps of a run")->check(CLI::PositiveNumber);
  command->add_option("--schedule", flags->options.schedule.name, "Learning rate schedule")
      ->check(CLI::IsMember({"constant", "cosine"}))
      ->capture_default_str();
  command->add_option("--momentum", flags->options.momentum, "Momentum of tensorion, online and muon")
      ->capture_default_str();
  command->add_option("--sgd-momentum", flags->options.sgd_momentum, "Momentum of sgd-momentum")
      ->capture_default_str();
  command
      ->add_option("--polar", flags->options.polar,
                   "Method of the polar factor: auto, halley, newton_schulz, svd")
      ->capture_default_str();
  command->add_option("--dtype", flags->dtype, "Of the cores and all that is computed")
      ->check(CLI::IsMember({"float64", "float32"}))
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "Threads of torch")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--out", flags->out, "Folder of the results")->capture_default_str();
  command->callback([command, flags] {
    set_missing(*command, scale_values(flags->scale));
    run_laplace(*flags);
  });
}

}  // namespace tensorion::lab
