#include "lab/training/run.h"

#include <ATen/Parallel.h>
#include <c10/util/StringUtil.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lab/io/atomic_file.h"
#include "lab/io/file.h"
#include "lab/io/json_file.h"
#include "lab/models/state_dict.h"
#include "lab/text/strings.h"
#include "lab/text/usage_error.h"
#include "lab/training/checkpoint.h"
#include "lab/training/result_folder.h"
#include "lab/training/run_record.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// Writes the files of a run while it trains.
class Recorder : public TrainingObserver {
 public:
  Recorder(const RunOptions& options, RunIdentity identity, Classifier& model,
           torch::optim::Optimizer& optimizer, TrainingObserver& progress)
      : options_(options),
        identity_(std::move(identity)),
        model_(model),
        optimizer_(optimizer),
        progress_(progress),
        steps_(options.folder / "steps.jsonl", identity_) {}

  void step_logged(const StepMetrics& metrics) override { steps_.add(metrics); }

  void after_step(const Trainer& trainer) override {
    progress_.after_step(trainer);
    const bool stop = options_.interrupted();
    const std::chrono::duration<double> age = Clock::now() - saved_at_;
    if (stop || age.count() >= options_.checkpoint_every) save(trainer);
    if (stop) throw Interrupted("stopped " + position(trainer.state()));
  }

  void before_test(const Trainer& trainer) override { progress_.before_test(trainer); }

  // A resumed run repeats the whole test, so the checkpoint has the state before it. During a test the model
  // may have the averaged weights; therefore save_if_interrupted saves the checkpoint after they are swapped
  // back.
  void after_test_batch(const Trainer& trainer) override {
    if (!options_.interrupted()) return;
    must_save_ = true;
    throw Interrupted("stopped " + position(trainer.state()));
  }

  // Saves a checkpoint if a test was interrupted.
  void save_if_interrupted(const Trainer& trainer) {
    if (must_save_) save(trainer);
  }

  void after_epoch(const Trainer& trainer) override {
    save(trainer);
    write_metrics(trainer.state());
    progress_.after_epoch(trainer);
    if (trainer.state().epoch < trainer.options().epochs && options_.interrupted()) {
      throw Interrupted("stopped " + position(trainer.state()));
    }
  }

  // Call this after a checkpoint was loaded.
  void resumed(const Trainer& trainer) {
    write_metrics(trainer.state());
    kept_ = position(trainer.state());
  }

  // Removes the lines that a killed run logged after its last checkpoint.
  void truncate_steps(const Trainer& trainer) { steps_.truncate(trainer.step()); }

  void write_metrics(const TrainingState& state) const {
    write_file(options_.folder / "metrics.jsonl", metrics_lines(identity_, state.history));
  }

 private:
  static std::string position(const TrainingState& state) {
    return c10::str("in epoch ", state.epoch + 1, " after step ", state.batch);
  }

  void save(const Trainer& trainer) {
    try {
      // Flushed before the checkpoint is saved, so that no line before the checkpoint can be lost.
      steps_.flush();
      save_checkpoint(options_.folder, model_, optimizer_, trainer.state(), trainer.tensors());
    } catch (const c10::Error& error) {
      throw std::runtime_error(
          std::string(error.what_without_backtrace()) + ". " +
          (kept_.empty() ? "There is no checkpoint yet" : "The checkpoint saved " + kept_ + " is kept"));
    }
    kept_ = position(trainer.state());
    saved_at_ = Clock::now();
  }

  const RunOptions& options_;
  RunIdentity identity_;
  Classifier& model_;
  torch::optim::Optimizer& optimizer_;
  TrainingObserver& progress_;
  StepLog steps_;
  bool must_save_ = false;
  std::string kept_;  // the position of the last checkpoint
  Clock::time_point saved_at_ = Clock::now();
};

// With --nonfinite ignore or skip, a run trains to the end even if its loss is not finite. Marks such a run
// as diverged.
void mark_nonfinite_as_diverged(RunSummary& summary) {
  const auto* last = summary.final_epoch();
  if (last == nullptr || (std::isfinite(last->train_loss) && std::isfinite(last->test_loss))) return;
  summary.diverged = true;
  summary.reason = std::isfinite(last->train_loss) ? "the test loss of the last epoch is not finite"
                                                   : "the train loss of the last epoch is not finite";
  if (summary.skipped_steps > 0)
    summary.reason += c10::str("; ", summary.skipped_steps, " steps were skipped");
}

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
  read_json(folder / "config.json", [&](const json& recorded) { check_same(folder, recorded, described); });
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
    throw FileError(
        metrics, c10::str("expected ", epochs, " epochs, as in summary.json, got ", summary.epochs.size()));
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
    // A run that was killed right after it wrote its summary leaves checkpoints.
    if (!summary.diverged) remove_checkpoints(folder);
    return summary;
  }

  at::set_num_threads(static_cast<int>(config.threads));
  std::string new_head;
  const auto model = make_model(config, data, &new_head);
  auto optimizer_options = config.optimizer_options;
  // The trainer checks the gradients itself, except if metrics are deferred: it must not wait for the device
  // then.
  const bool optimizer_skips = config.training.defer_metrics && config.training.nonfinite == "skip";
  if (optimizer_skips) optimizer_options.nonfinite("skip");
  Tensorion optimizer = checked_usage([&] { return Tensorion(model->parameters(), optimizer_options); });
  const auto train = train_loader(config, data);
  const auto test = test_loader(config, data);
  Trainer trainer(*model, optimizer, train, test, config.training);

  RunSummary summary;
  summary.identity = {result_path(fs::absolute(folder)).filename().string(), config.optimizer, config.seed,
                      config.label};
  summary.parameters = count_parameters(*model);
  summary.threads = config.threads;
  // The folder is created only now, so that invalid options do not leave an empty folder.
  if (!lock) {
    fs::create_directories(folder);
    lock.emplace(folder);
    // Another process may have created a run meanwhile.
    if (fs::exists(folder / "config.json")) throw FolderBusy(folder);
    check_owner(folder, ResultKind::kRun, false);
  }
  Recorder recorder(options, summary.identity, *model, optimizer, progress);
  write_json(folder / "config.json", described);
  if (options.resume) {
    const auto load_tensors = [&](const NamedTensors& tensors, const std::string& source) {
      trainer.load_tensors(tensors, source);
    };
    if (auto state = load_checkpoint(folder, *model, optimizer, options.warn, load_tensors)) {
      trainer.set_state(std::move(*state));
      recorder.resumed(trainer);
    }
    recorder.truncate_steps(trainer);
  }
  if (!new_head.empty() && trainer.state().epoch == 0 && trainer.state().batch == 0) options.warn(new_head);
  try {
    trainer.run(recorder);
    write_safetensors(folder / "weights.safetensors", state_dict(*model), weights_metadata(described));
    const auto average = trainer.average();
    if (!average.empty())
      write_safetensors(folder / "weights.ema.safetensors", average, weights_metadata(described));
  } catch (const Interrupted&) {
    recorder.save_if_interrupted(trainer);
    throw;
  } catch (const Diverged& error) {
    summary.diverged = true;
    summary.reason = error.what();
    recorder.write_metrics(trainer.state());
  }
  summary.epochs = trainer.state().history;
  summary.skipped_steps = trainer.state().skipped_steps + (optimizer_skips ? optimizer.skipped_steps() : 0);
  if (!summary.diverged) mark_nonfinite_as_diverged(summary);
  write_json(folder / "summary.json", to_json(summary));
  if (!summary.diverged) remove_checkpoints(folder);
  return summary;
}

}  // namespace tensorion::lab
