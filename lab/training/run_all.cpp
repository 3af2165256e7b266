#include "lab/training/run_all.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lab/io/atomic_file.h"
#include "lab/io/json_file.h"
#include "lab/text/strings.h"
#include "lab/text/table.h"
#include "lab/training/comparison.h"
#include "lab/training/progress.h"

namespace tensorion::lab {
namespace {

class Runs {
 public:
  Runs(const std::vector<RunConfig>& configs, const RunOptions& options, const RunName& name)
      : configs_(configs), options_(options), name_(name), terminal_(stderr) {}

  std::vector<RunSummary> run(const DatasetSplits& data) {
    for (const auto& config : configs_) {
      Progress progress(terminal_, terminal_.is_tty() ? "" : name_(config) + ": ", table());
      auto options = options_;
      options.folder /= name_(config);
      const auto summary = run_training(config, data, options, progress);
      if (summary.diverged && !terminal_.is_tty()) {
        terminal_.print(name_(config) + ": diverged: " + summary.reason);
      }
      done_.push_back(summary);
      write();
    }
    if (terminal_.is_tty()) terminal_.show(lines({}));
    return done_;
  }

 private:
  void write() const {
    std::string all;
    for (const auto& summary : done_) all += metrics_lines(summary.identity, summary.epochs);
    write_file(options_.folder / "metrics.jsonl", all);
    write_json(options_.folder / "summary.json", to_json(compare(done_), done_));
  }

  // The live table, if the terminal has room for it.
  Progress::Table table() const {
    if (terminal_.height() < static_cast<int>(configs_.size()) + 3) return nullptr;
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
      rows.push_back(row(configs_[i], own, is_done && done_[i].diverged ? "diverged" : count));
    }
    std::ostringstream text;
    print_rows(text, rows, "lrrrrrrrr");
    auto out = split(text.str(), '\n');
    out.pop_back();
    return out;
  }

  TableRow row(const RunConfig& config, const std::vector<EpochMetrics>& epochs,
               const std::string& status) const {
    RunSummary summary;
    summary.epochs = epochs;
    TableRow row{name_(config), string_printf("%.3g", config.optimizer_options.lr()), status};
    if (epochs.empty()) return row;
    const auto& last = epochs.back();
    row.push_back(string_printf("%.4f", last.train_loss));
    row.push_back(string_printf("%.4f", last.test_loss));
    row.push_back(string_printf("%.2f", 100 * last.test_accuracy));
    row.push_back(string_printf("%.2f", 100 * summary.best_epoch()->test_accuracy));
    row.push_back(duration(summary.seconds()));
    row.push_back(
        string_printf("%.0f %%", 100 * summary.optimizer_seconds() / std::max(1e-9, summary.seconds())));
    return row;
  }

  const std::vector<RunConfig>& configs_;
  const RunOptions& options_;
  const RunName& name_;
  Terminal terminal_;
  std::vector<RunSummary> done_;
};

}  // namespace

std::string seed_name(const RunConfig& config) {
  return method_name(config) + "-seed" + std::to_string(config.seed);
}

std::vector<RunSummary> run_all(const std::vector<RunConfig>& configs, const DatasetSplits& data,
                                const RunOptions& options, const RunName& name) {
  return Runs(configs, options, name).run(data);
}

}  // namespace tensorion::lab
