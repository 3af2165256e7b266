#include "lab/commands/run_all.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lab/table.h"
#include "lab/text.h"
#include "lab/training/comparison.h"
#include "lab/training/progress.h"
#include "lab/weights/atomic_file.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;

class Runs {
 public:
  Runs(const std::vector<RunConfig>& configs, const RunFlags& flags, const fs::path& folder,
       const RunName& name)
      : configs_(configs), flags_(flags), folder_(folder), name_(name), screen_(stderr) {}

  std::vector<RunSummary> run(const DatasetSpec& data) {
    for (const auto& config : configs_) {
      Progress progress(screen_, screen_.is_terminal() ? "" : name_(config) + ": ", table());
      const auto summary = run_training(config, data, run_options(flags_, folder_ / name_(config)), progress);
      if (summary.diverged && !screen_.is_terminal()) {
        screen_.print(name_(config) + ": diverged: " + summary.reason);
      }
      done_.push_back(summary);
      write();
    }
    if (screen_.is_terminal()) screen_.show(lines({}));
    return done_;
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
    TableRow row{name_(config), format("%.3g", config.optimizer_options.lr()), status};
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

  const std::vector<RunConfig>& configs_;
  const RunFlags& flags_;
  const fs::path& folder_;
  const RunName& name_;
  Screen screen_;
  std::vector<RunSummary> done_;
};

}  // namespace

std::string seed_name(const RunConfig& config) {
  return method_name(config) + "-seed" + std::to_string(config.seed);
}

std::vector<RunSummary> run_all(const std::vector<RunConfig>& configs, const DatasetSpec& data,
                                const RunFlags& flags, const fs::path& folder, const RunName& name) {
  return Runs(configs, flags, folder, name).run(data);
}

}  // namespace tensorion::lab
