// One training run. Its folder has these files:
//
//   config.json              the options of the run
//   metrics.jsonl            one line per finished epoch
//   steps.jsonl              one line every --log-steps steps, if the option is given
//   checkpoint*.safetensors  removed when the run finishes
//   weights.safetensors      written at the end
//   weights.ema.safetensors  the averaged weights, written at the end if --ema is given
//   summary.json             written when the run finishes or diverges
#pragma once

#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>

#include "lab/training/run_config.h"

namespace tensorion::lab {

struct RunOptions {
  std::filesystem::path folder;
  // If true, continue the run in the folder, or start one if there is none. If false, a folder that already
  // has a run is an error.
  bool resume = false;
  // If true, other processes do runs of the same comparison, and no live table is shown.
  bool shared = false;
  // Seconds between checkpoints within an epoch. Another checkpoint is saved at the end of each epoch.
  double checkpoint_every = 300;
  // Called after every step and every test batch. If it returns true, the run saves a checkpoint and throws
  // Interrupted.
  std::function<bool()> interrupted = [] { return false; };
  // Called with a message about a problem that does not stop the run.
  std::function<void(const std::string&)> warn = [](const std::string&) {};
};

// The run was stopped by a signal and can be resumed from its checkpoint.
class Interrupted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Checks the folder as run_training does before it writes anything. Throws if the folder has results of
// another kind, if it has a run and `options.resume` is false, or if its run was started with different
// options or data. The error names the first difference.
void check_run(const RunConfig& config, const DatasetSplits& data, const RunOptions& options);

// Reads the summary of a run that has finished or diverged.
RunSummary read_run_summary(const std::filesystem::path& folder);

// Calls check_run, trains to the end and returns the summary. If the folder has a summary already, returns it
// without training. If the run diverges, the summary says so, and the last checkpoint is kept. Throws
// FolderBusy if another process is doing the run.
RunSummary run_training(const RunConfig& config, const DatasetSplits& data, const RunOptions& options,
                        TrainingObserver& progress);

}  // namespace tensorion::lab
