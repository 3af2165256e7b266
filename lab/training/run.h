// One run and its folder:
//
//   config.json          the options that determine it
//   metrics.jsonl        an object for each epoch that is over
//   steps.jsonl          an object every so many steps, if asked for
//   checkpoint*          while it is not over
//   weights.safetensors  at the end; beside it, if the weights are averaged, weights.ema.safetensors
//   summary.json         at the end, or when it diverged
#pragma once

#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>

#include "lab/training/run_config.h"

namespace tensorion::lab {

struct RunOptions {
  std::filesystem::path folder;
  // Go on with the folder's run, or start one if there is none. Otherwise a folder that has a run is an
  // error.
  bool resume = false;
  // Seconds between the checkpoints within an epoch. There is one at the end of each epoch as well.
  double checkpoint_every = 300;
  // Called after every step: if true, the run saves a checkpoint and throws Interrupted.
  std::function<bool()> interrupted = [] { return false; };
  // Called with a message if something unusual happened that does not stop the run.
  std::function<void(const std::string&)> warn = [](const std::string&) {};
};

// The run was stopped from outside and can go on from its checkpoint.
class Interrupted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws what run_training would throw about the folder before it writes anything: results of another kind, a
// run that is not to be resumed, or one that was begun with other options or data; the error names the first
// that differs.
void check_run(const RunConfig& config, const DatasetSplits& data, const RunOptions& options);

// The summary of a run that is over, from its folder.
RunSummary read_run_summary(const std::filesystem::path& folder);

// Trains to the end and returns the summary. If the folder's run is over already, returns its summary at
// once. Checks the folder by check_run first. A run that diverges has a summary that says so, and keeps its
// last checkpoint.
RunSummary run_training(const RunConfig& config, const DatasetSplits& data, const RunOptions& options,
                        TrainingObserver& progress);

}  // namespace tensorion::lab
