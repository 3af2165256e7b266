#include "lab/commands/compare.h"

#include <ATen/Parallel.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "lab/commands/run_flags.h"
#include "lab/table.h"
#include "lab/text.h"
#include "lab/training/comparison.h"
#include "lab/training/progress.h"
#include "lab/weights/atomic_file.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;

struct CompareOptions {
  RunFlags flags;
  std::vector<std::string> optimizers = optimizer_names();
  std::vector<int64_t> seeds = {0};
};

std::string run_name(const RunConfig& config) {
  return config.optimizer + "-seed" + std::to_string(config.seed);
}

// A line of the live table.
TableRow run_row(const RunConfig& config, const std::vector<EpochMetrics>& epochs,
                 const std::string& status) {
  RunSummary summary;
  summary.epochs = epochs;
  TableRow row{run_name(config), format("%.3g", config.optimizer_options.lr()), status};
  if (epochs.empty()) return row;
  const auto& last = epochs.back();
  row.push_back(format("%.4f", last.train_loss));
  row.push_back(format("%.4f", last.test_loss));
  row.push_back(format("%.2f", 100 * last.test_accuracy));
  row.push_back(format("%.2f", 100 * summary.best_epoch()->test_accuracy));
  row.push_back(duration(summary.seconds()));
  row.push_back(format("%.0f %%", 100 * summary.optimizer_seconds() / std::max(1e-9, summary.seconds())));
  return row;
}

// The runs one after the other.
class Comparison {
 public:
  Comparison(const CompareOptions& options, std::vector<RunConfig> configs, fs::path folder)
      : options_(options), configs_(std::move(configs)), folder_(std::move(folder)), screen_(stderr) {}

  void run() {
    const auto data = load_data(configs_.front());
    fs::create_directories(folder_);
    for (const auto& config : configs_) {
      Progress progress(screen_, screen_.is_terminal() ? "" : run_name(config) + ": ", table());
      const auto run_folder = folder_ / run_name(config);
      const auto summary = run_training(config, data, run_options(options_.flags, run_folder), progress);
      if (summary.diverged && !screen_.is_terminal()) {
        screen_.print(run_name(config) + ": diverged: " + summary.reason);
      }
      done_.push_back(summary);
      write();
    }
    if (screen_.is_terminal()) screen_.show(lines({}));
    for (const auto& summary : done_) {
      if (summary.diverged) std::cout << summary.identity.run << " diverged: " << summary.reason << '\n';
    }
    print_comparison(std::cout, compare(done_));
    std::cout << "results in " << folder_.string() << '\n';
  }

 private:
  void write() const {
    std::string all;
    for (const auto& summary : done_) all += metrics_lines(summary.identity, summary.epochs);
    write_file(folder_ / "metrics.jsonl", all);
    write_file(folder_ / "summary.json", to_json(compare(done_), done_).dump(2) + '\n');
  }

  // The live table, where the terminal has room for it.
  Progress::Table table() const {
    if (screen_.height() < static_cast<int>(configs_.size()) + 3) return nullptr;
    return [this](const Trainer& trainer) { return lines(trainer.state().history); };
  }

  // A line for each run; `epochs` are those of the one that is running.
  std::vector<std::string> lines(const std::vector<EpochMetrics>& epochs) const {
    std::vector<TableRow> rows{
        {"run", "lr", "epoch", "train loss", "test loss", "accuracy", "best", "time", "optimizer"}};
    for (size_t i = 0; i < configs_.size(); ++i) {
      const bool is_done = i < done_.size();
      const auto& own = is_done ? done_[i].epochs : i == done_.size() ? epochs : std::vector<EpochMetrics>{};
      const auto count = std::to_string(own.size()) + "/" + std::to_string(configs_[i].training.epochs);
      rows.push_back(run_row(configs_[i], own, is_done && done_[i].diverged ? "diverged" : count));
    }
    std::ostringstream text;
    print_rows(text, rows, "lrrrrrrrr");
    auto out = split(text.str(), '\n');
    out.pop_back();
    return out;
  }

  const CompareOptions& options_;
  std::vector<RunConfig> configs_;
  fs::path folder_;
  Screen screen_;
  std::vector<RunSummary> done_;
};

template <typename T>
void check_distinct(const std::vector<T>& values, const char* flag) {
  TORCH_CHECK_VALUE(std::set<T>(values.begin(), values.end()).size() == values.size(), flag,
                    " must not name one twice");
}

void run_comparison(const CompareOptions& options) {
  check_distinct(options.optimizers, "--optimizers");
  check_distinct(options.seeds, "--seeds");
  std::vector<RunConfig> configs;
  for (const int64_t seed : options.seeds) {
    for (auto& config : make_configs(options.flags, options.optimizers)) {
      config.seed = seed;
      configs.push_back(std::move(config));
    }
  }
  const auto& common = options.flags.common;
  at::set_num_threads(static_cast<int>(common.threads));
  const auto folder = options.flags.out.empty()
                          ? fs::path("runs") / ("compare-" + common.dataset + "-" + common.model)
                          : options.flags.out;
  Comparison comparison(options, std::move(configs), folder);
  run_interruptible([&] { comparison.run(); });
}

}  // namespace

void add_compare(CLI::App& program) {
  const auto options = std::make_shared<CompareOptions>();
  auto* command =
      program.add_subcommand("compare", "Compare optimizers on the same data, from the same weights");
  command->add_option("--optimizers", options->optimizers, "Optimizers")
      ->delimiter(',')
      ->check(CLI::IsMember(optimizer_names()))
      ->capture_default_str()
      ->group("Optimizer");
  command->add_option("--seeds", options->seeds, "Seeds: a run of every optimizer for each")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group("Training");
  add_run_flags(*command, options->flags);
  command->callback([options] { run_comparison(*options); });
}

}  // namespace tensorion::lab
