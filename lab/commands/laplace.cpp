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
#include "lab/experiments/laplace_sweep.h"
#include "lab/flags/config_flags.h"
#include "lab/flags/flag_values.h"
#include "lab/flags/validators.h"
#include "lab/io/json_file.h"
#include "lab/io/toml_file.h"
#include "lab/text/strings.h"
#include "lab/text/terminal.h"
#include "lab/text/usage_error.h"
#include "lab/training/interrupt.h"
#include "lab/training/result_folder.h"
#include "lab/training/run.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct LaplaceFlags {
  ConfigFlags config;
  std::string scale = "paper";
  std::vector<std::string> problems;
  std::vector<std::string> optimizers = laplace_optimizers();
  std::vector<double> lrs;
  std::vector<int64_t> seeds;
  std::string dtype = "float64";
  LaplaceOptions options;
  int64_t threads = 1;
  fs::path out = "runs/laplace";
  bool resume = false;
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

// What a record was begun with and must go on with; problems, optimizers, learning rates and seeds may be
// added.
ordered_json fixed_options(const LaplaceFlags& flags) {
  auto out = to_json(flags);
  for (const auto* key : {"scale", "problems", "optimizers", "lrs", "seeds", "threads"}) out.erase(key);
  return out;
}

void check_folder(const LaplaceFlags& flags) {
  check_owner(flags.out, ResultKind::kLaplace, flags.resume);
  const auto path = flags.out / "config.json";
  if (!fs::exists(path)) return;
  const auto now = fixed_options(flags);
  read_json(path, [&](const nlohmann::json& begun) {
    for (const auto& [key, value] : now.items()) {
      TORCH_CHECK_VALUE(begun.value(key, nlohmann::json()) == nlohmann::json(value), flags.out.string(),
                        " was begun with other options: ", key, " ",
                        begun.value(key, nlohmann::json()).dump(), ", got ", value.dump());
    }
  });
}

// The runs of all problems, one after the other.
class Sweeps {
 public:
  Sweeps(const LaplaceFlags& flags, const std::vector<LaplaceProblem>& problems)
      : flags_(flags),
        options_(flags.options),
        record_(flags.out / "metrics.jsonl", flags.options.steps),
        terminal_(stderr),
        runs_(problems.size() * flags.optimizers.size() * flags.lrs.size() * flags.seeds.size()) {
    options_.dtype = flags.dtype == "float32" ? at::kFloat : at::kDouble;
  }
  ~Sweeps() {
    if (terminal_.is_tty()) terminal_.show({});
  }
  Sweeps(const Sweeps&) = delete;
  Sweeps& operator=(const Sweeps&) = delete;

  std::vector<LaplaceSweep> of(const LaplaceProblem& problem) {
    std::vector<LaplaceSweep> sweeps;
    for (const auto& optimizer : flags_.optimizers) {
      sweeps.push_back(sweep_rates(optimizer, flags_.lrs, flags_.seeds, [&](double lr, int64_t seed) {
        const auto* known = record_.find(problem, optimizer, lr, seed);
        const auto& run =
            known != nullptr
                ? *known
                : record_.add(
                      problem, minimize_quotient(problem, optimizer, lr, seed, options_, [&] {
                        if (interrupt_signal() != 0)
                          throw Interrupted(string_printf("stopped in run %zu of %zu", count_ + 1, runs_));
                      }));
        show(problem, run);
        return run;
      }));
      const auto* best = sweeps.back().best();
      terminal_.print(problem.str() + ", " + optimizer + ": " +
                      (best == nullptr ? "all diverged"
                                       : string_printf("best lr %.3g, error %.2e", best->lr, best->error)));
    }
    return sweeps;
  }

 private:
  void show(const LaplaceProblem& problem, const LaplaceRun& run) {
    ++count_;
    if (!terminal_.is_tty()) return;
    terminal_.show({string_printf("run %zu of %zu: %s, %s, lr %.3g: error %.2e", count_, runs_,
                                  problem.str().c_str(), run.optimizer.c_str(), run.lr, run.final_error())});
  }

  const LaplaceFlags& flags_;
  LaplaceOptions options_;
  LaplaceRecord record_;
  Terminal terminal_;
  size_t runs_;
  size_t count_ = 0;
};

void run_laplace(const CLI::App& command, LaplaceFlags& flags) {
  std::vector<LaplaceProblem> problems;
  problems.reserve(flags.problems.size());
  const auto& options = flags.options;
  checked_usage([&] {
    for (const auto& text : flags.problems) problems.push_back(LaplaceProblem::parse(text));
    TensorionOptions().momentum(options.momentum).polar(options.polar).check();
    TensorionOptions().fallback_momentum(options.sgd_momentum).check();
  });
  if (flags.config.print) {
    std::cout << to_toml(resolved_flags(command, {}));
    return;
  }
  flags.out = result_path(flags.out);
  check_folder(flags);
  const InterruptGuard guard;
  const size_t runs = problems.size() * flags.optimizers.size() * flags.lrs.size() * flags.seeds.size();
  std::cerr << string_printf(
      "%zu runs of %ld steps: %zu problems, %zu optimizers, %zu learning rates, %zu seeds\n", runs,
      options.steps, problems.size(), flags.optimizers.size(), flags.lrs.size(), flags.seeds.size());
  at::set_num_threads(static_cast<int>(flags.threads));
  fs::create_directories(flags.out);
  const FolderLock lock(flags.out);
  write_json(flags.out / "config.json", to_json(flags));

  auto results = ordered_json::array();
  std::vector<ResultTable> tables;
  {
    Sweeps sweeps(flags, problems);
    for (const auto& problem : problems) {
      const auto found = sweeps.of(problem);
      results.push_back(to_json(problem, found));
      tables.push_back(laplace_table(problem, found));
    }
  }
  tables.back().notes = {
      "(error: (x'Ax / x'x - eigenvalue) / eigenvalue; residual: ||Ax - (x'Ax / x'x) x|| / (eigenvalue "
      "||x||); at the "
      "learning rate of the smallest error, geometric means over the seeds)",
      "(the paper shows this experiment in figures only: it has no numbers to set beside)"};
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
      "laplace",
      "The smallest eigenpair of a Laplacian in many dimensions, over the cores of a tensor train");
  add_config_flags(*command, flags->config);
  add_scale(*command, flags->scale);
  command->add_option("--problems", flags->problems, "Dimensions x points x rank: 10x32x8,20x32x8")
      ->delimiter(',');
  command->add_option("--optimizers", flags->optimizers, "Optimizers")
      ->delimiter(',')
      ->check(one_of(laplace_optimizers()))
      ->capture_default_str();
  command->add_option("--lrs", flags->lrs, "Learning rates")->delimiter(',')->check(positive_number());
  command->add_option("--seeds", flags->seeds, "Seeds of the train to start from")
      ->delimiter(',')
      ->check(non_negative_count());
  command->add_option("--steps", flags->options.steps, "Steps of a run")->check(positive_count());
  command->add_option("--schedule", flags->options.schedule.name, "Learning rate schedule")
      ->check(one_of({"constant", "cosine"}))
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
      ->check(one_of({"float64", "float32"}))
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "Threads of torch")
      ->check(thread_count())
      ->capture_default_str();
  command->add_option("--out", flags->out, "Folder of the results")->capture_default_str();
  command->add_flag("--resume", flags->resume, "Go on with what the folder has");
  before_help(*command, [command, flags] { show_defaults(*command, scale_values(flags->scale)); });
  command->callback([command, flags] {
    if (!flags->config.file.empty()) apply_config(*command, flags->config.file);
    set_missing(*command, scale_values(flags->scale));
    run_laplace(*command, *flags);
  });
}

}  // namespace tensorion::lab
