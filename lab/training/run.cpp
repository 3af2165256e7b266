#include "lab/training/run.h"

#include <ATen/Parallel.h>
#include <c10/util/StringUtil.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "lab/io/atomic_file.h"
#include "lab/io/file.h"
#include "lab/io/json_file.h"
#include "lab/models/state_dict.h"
#include "lab/text/strings.h"
#include "lab/training/checkpoint.h"
#include "lab/training/result_folder.h"
#include "lab/training/run_record.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// Writes the run's files as it goes.
class Recorder : public TrainingObserver {
 public:
  Recorder(const RunOptions& options, RunIdentity identity, Classifier& model,
           torch::optim::Optimizer& optimizer, TrainingObserver& progress)
      : options_(options),
        identity_(std::move(identity)),
        model_(model),
        optimizer_(optimizer),
        progress_(progress) {}

  void after_step(const Trainer& trainer) override {
    progress_.after_step(trainer);
    const bool stop = options_.interrupted();
    const std::chrono::duration<double> age = Clock::now() - saved_at_;
    if (stop || age.count() >= options_.checkpoint_every) save(trainer);
    if (stop) throw Interrupted("stopped " + position(trainer.state()));
  }

  void before_test(const Trainer& trainer) override { progress_.before_test(trainer); }

  void after_epoch(const Trainer& trainer) override {
    save(trainer);
    write_metrics(trainer.state());
    progress_.after_epoch(trainer);
    if (trainer.state().epoch < trainer.options().epochs && options_.interrupted()) {
      throw Interrupted("stopped " + position(trainer.state()));
    }
  }

  // The run goes on from here.
  void resumed(const TrainingState& state) {
    write_metrics(state);
    kept_ = position(state);
  }

  void write_metrics(const TrainingState& state) const {
    write_file(options_.folder / "metrics.jsonl", metrics_lines(identity_, state.history));
  }

 private:
  static std::string position(const TrainingState& state) {
    return c10::str("in epoch ", state.epoch + 1, " after step ", state.batch);
  }

  void save(const Trainer& trainer) {
    try {
      save_checkpoint(options_.folder, model_, optimizer_, trainer.state());
    } catch (const c10::Error& error) {
      throw std::runtime_error(
          std::string(error.what_without_backtrace()) + ". " +
          (kept_.empty() ? "There is no checkpoint yet" : "The checkpoint made " + kept_ + " is kept"));
    }
    kept_ = position(trainer.state());
    saved_at_ = Clock::now();
  }

  const RunOptions& options_;
  RunIdentity identity_;
  Classifier& model_;
  torch::optim::Optimizer& optimizer_;
  TrainingObserver& progress_;
  std::string kept_;  // the position of the last checkpoint
  Clock::time_point saved_at_ = Clock::now();
};

int64_t count_parameters(const Classifier& model) {
  int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

}  // namespace

void check_run(const RunConfig& config, const DatasetSplits& data, const RunOptions& options) {
  const auto& folder = options.folder;
  check_owner(folder, ResultKind::kRun, options.resume);
  if (!fs::exists(folder / "config.json")) return;
  const auto described = describe(config, data);
  read_json(folder / "config.json", [&](const json& begun) { check_same(folder, begun, described); });
}

RunSummary read_run_summary(const fs::path& folder) {
  RunSummary summary;
  size_t epochs = 0;
  read_json(folder / "summary.json", [&](const json& value) {
    summary = summary_from_json(value);
    epochs = value.at("epochs").get<size_t>();
  });
  const auto metrics = folder / "metrics.jsonl";
  read_json_lines(metrics,
                  [&](const json& value) { summary.epochs.push_back(epoch_metrics_from_json(value)); });
  if (summary.epochs.size() != epochs) {
    throw FileError(metrics, c10::str("expected the ", epochs, " epochs that summary.json counts, got ",
                                      summary.epochs.size()));
  }
  return summary;
}

RunSummary run_training(const RunConfig& config, const DatasetSplits& data, const RunOptions& options,
                        TrainingObserver& progress) {
  const auto& folder = options.folder;
  const auto described = describe(config, data);
  std::optional<FolderLock> lock;
  if (fs::exists(folder / "config.json")) lock.emplace(folder);
  check_run(config, data, options);
  if (fs::exists(folder / "summary.json")) {
    auto summary = read_run_summary(folder);
    if (!summary.diverged) remove_checkpoints(folder);  // a run that was killed at its very end left them
    return summary;
  }

  at::set_num_threads(static_cast<int>(config.threads));
  const auto model = make_model(config, data);
  Tensorion optimizer(model->parameters(), config.optimizer_options);
  const auto train = train_loader(config, data);
  const auto test = test_loader(config, data);
  Trainer trainer(*model, optimizer, train, test, config.training);

  RunSummary summary;
  summary.identity = {fs::absolute(folder).lexically_normal().filename().string(), config.optimizer,
                      config.seed, config.label};
  summary.parameters = count_parameters(*model);
  summary.threads = config.threads;
  // From here on there is something to keep: what was wrong with the options has left no folder.
  if (!lock) {
    fs::create_directories(folder);
    lock.emplace(folder);
    check_owner(folder, ResultKind::kRun, false);  // of a process that was faster
  }
  Recorder recorder(options, summary.identity, *model, optimizer, progress);
  write_json(folder / "config.json", described);
  if (options.resume) {
    if (auto state = load_checkpoint(folder, *model, optimizer, options.warn)) {
      trainer.set_state(std::move(*state));
      recorder.resumed(trainer.state());
    }
  }
  try {
    trainer.run(recorder);
    write_safetensors(folder / "weights.safetensors", state_dict(*model), weights_metadata(described));
  } catch (const Diverged& error) {
    summary.diverged = true;
    summary.reason = error.what();
    recorder.write_metrics(trainer.state());
  }
  summary.epochs = trainer.state().history;
  summary.skipped_steps = trainer.state().skipped_steps;
  write_json(folder / "summary.json", to_json(summary));
  if (!summary.diverged) remove_checkpoints(folder);
  return summary;
}

}  // namespace tensorion::lab
