// One run and its folder:
//
//   config.json          the options that determine it
//   metrics.jsonl        an object for each epoch that is over
//   checkpoint*          while it is not over
//   weights.safetensors  at the end
//   summary.json         at the end, or where it diverged
#pragma once

#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>

#include "lab/training/run_config.h"

namespace tensorion::lab {

struct RunOptions {
  std::filesystem::path folder;
  // Go on with what the folder has (nothing: start); else a folder that has a run is an error.
  bool resume = false;
  // Checkpoints are written at the end of each epoch and within it when so many seconds have passed.
  double checkpoint_every = 300;
  // Looked up after every step: true ends the run by a checkpoint and Interrupted.
  std::function<bool()> interrupted = [] { return false; };
  // Told what went differently than usual.
  std::function<void(const std::string&)> warn = [](const std::string&) {};
};

// The run was stopped from outside and can go on from its checkpoint.
class Interrupted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Trains to the end and gives the summary: at once where the folder's run is over already. Resuming a run
// that was begun with other options is an error that names the first that differs. A run that diverges has
// a summary that says so, and keeps its last checkpoint.
RunSummary run_training(const RunConfig& config, const DatasetSplits& data, const RunOptions& options,
                        TrainingObserver& progress);

}  // namespace tensorion::lab
