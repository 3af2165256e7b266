#include "lab/training/run_all.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "lab/io/atomic_file.h"
#include "lab/io/json_file.h"
#include "lab/text/strings.h"
#include "lab/text/table.h"
#include "lab/training/comparison.h"
#include "lab/training/progress.h"
#include "lab/training/result_folder.h"

namespace tensorion::lab {
namespace {

constexpr std::chrono::milliseconds kPoll{500};  // interval between checks of the runs of other processes

class Runs {
 public:
  Runs(const std::vector<RunConfig>& configs, const RunOptions& options, const RunName& name)
      : configs_(configs),
        options_(options),
        name_(name),
        terminal_(stderr, /*is_live=*/!options.shared),
        done_(configs.size()) {}

  std::vector<RunSummary> run(const DatasetSplits& data) {
    check_runs(configs_, data, options_, name_);
    while (!all_done()) {
      bool waits = true;  // true if other processes are doing all remaining runs
      for (current_ = 0; current_ < configs_.size(); ++current_) {
        if (!done_[current_] && try_run(data)) waits = false;
      }
      if (waits) wait();
    }
    if (terminal_.is_tty()) terminal_.show(lines({}));
    std::vector<RunSummary> summaries;
    for (const auto& summary : done_) summaries.push_back(summary.value());
    return summaries;
  }

 private:
  // Does the current run and returns true, unless another process is doing it.
  bool try_run(const DatasetSplits& data) {
    const auto& config = configs_[current_];
    auto options = options_;
    options.folder /= name_(config);
    Progress progress(terminal_, terminal_.is_tty() ? "" : name_(config) + ": ", table());
    try {
      done_[current_] = run_training(config, data, options, progress);
    } catch (const FolderBusy&) {
      if (!options_.resume) throw;
      return false;
    }
    const auto& summary = done_[current_].value();
    if (summary.diverged && !terminal_.is_tty())
      terminal_.print(name_(config) + ": diverged: " + summary.reason);
    record();
    return true;
  }

  bool all_done() const {
    return std::all_of(done_.begin(), done_.end(), [](const auto& run) { return run.has_value(); });
  }

  void wait() const {
    std::this_thread::sleep_for(kPoll);
    if (options_.interrupted()) throw Interrupted("stopped while waiting for other processes");
  }

  // Writes the metrics and summaries of all finished runs in the folder. The runs of earlier calls and of
  // other processes come first, followed by the runs of this process in the order of their configurations.
  void record() const {
    const FolderLock lock(options_.folder, /*wait=*/true);
    std::set<std::string> own;
    for (const auto& run : done_) {
      if (run) own.insert(run->identity.run);
    }
    std::vector<RunSummary> runs;
    for (const auto& run : recorded_runs(options_.folder)) {
      if (!own.contains(run.identity.run)) runs.push_back(run);
    }
    for (const auto& run : done_) {
      if (run) runs.push_back(*run);
    }
    std::string all;
    for (const auto& run : runs) all += metrics_lines(run.identity, run.epochs);
    // The summary is written first, because other processes use it to identify the results in the folder.
    write_json(options_.folder / "summary.json", to_json(compare(runs), runs));
    write_file(options_.folder / "metrics.jsonl", all);
  }

  // Returns the live table if the terminal has room for it, otherwise null.
  Progress::Table table() const {
    if (terminal_.height() < static_cast<int>(configs_.size()) + 3) return nullptr;
    return [this](const Trainer& trainer) { return lines(trainer.state().history); };
  }

  // Returns one line for each run. `epochs` are the epochs of the current run.
  std::vector<std::string> lines(const std::vector<EpochMetrics>& epochs) const {
    std::vector<TableRow> rows{
        {"run", "lr", "epoch", "train loss", "test loss", "accuracy", "best", "time", "optimizer"}};
    for (size_t i = 0; i < configs_.size(); ++i) {
      const auto& summary = done_[i];
      const auto& own = summary ? summary->epochs : i == current_ ? epochs : std::vector<EpochMetrics>{};
      const auto count = std::to_string(own.size()) + "/" + std::to_string(configs_[i].training.epochs);
      rows.push_back(row(configs_[i], own, summary && summary->diverged ? "diverged" : count));
    }
    // In a narrow terminal, the columns in `kLeastImportant` are removed one by one.
    constexpr size_t kLeastImportant[] = {8, 6, 1, 3, 7, 4};
    std::string alignment = "lrrrrrrrr";
    std::vector<bool> is_shown(alignment.size(), true);
    auto out = text_lines(rows, alignment);
    for (const size_t column : kLeastImportant) {
      if (is_narrow_enough(out)) break;
      is_shown[column] = false;
      out = text_lines(chosen(rows, is_shown), alignment);
    }
    return out;
  }

  bool is_narrow_enough(const std::vector<std::string>& lines) const {
    return std::all_of(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.size() < static_cast<size_t>(terminal_.width());
    });
  }

  static std::vector<TableRow> chosen(const std::vector<TableRow>& rows, const std::vector<bool>& is_shown) {
    std::vector<TableRow> out;
    for (const auto& row : rows) {
      auto& kept = out.emplace_back();
      for (size_t i = 0; i < row.size(); ++i) {
        if (is_shown[i]) kept.push_back(row[i]);
      }
    }
    return out;
  }

  static std::vector<std::string> text_lines(const std::vector<TableRow>& rows,
                                             const std::string& alignment) {
    std::ostringstream text;
    print_rows(text, rows, alignment);
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
  size_t current_ = 0;
  std::vector<std::optional<RunSummary>> done_;  // one entry for each of `configs_`
};

}  // namespace

std::string seed_name(const RunConfig& config) {
  return method_name(config) + "-seed" + std::to_string(config.seed);
}

void check_folders(const std::vector<RunConfig>& configs, const RunOptions& options, const RunName& name) {
  check_owner(options.folder, ResultKind::kComparison, options.resume);
  for (const auto& config : configs)
    check_owner(options.folder / name(config), ResultKind::kRun, options.resume);
}

void check_runs(const std::vector<RunConfig>& configs, const DatasetSplits& data, const RunOptions& options,
                const RunName& name) {
  for (const auto& config : configs) {
    auto own = options;
    own.folder /= name(config);
    check_run(config, data, own);
  }
}

std::vector<RunSummary> run_all(const std::vector<RunConfig>& configs, const DatasetSplits& data,
                                const RunOptions& options, const RunName& name) {
  check_folders(configs, options, name);
  return Runs(configs, options, name).run(data);
}

std::vector<RunSummary> recorded_runs(const std::filesystem::path& folder) {
  std::vector<RunSummary> runs;
  if (!std::filesystem::exists(folder / "summary.json")) return runs;
  read_json(folder / "summary.json", [&](const nlohmann::json& summary) {
    for (const auto& run : summary.at("runs"))
      runs.push_back(read_run_summary(folder / run.at("run").get<std::string>()));
  });
  return runs;
}

}  // namespace tensorion::lab
