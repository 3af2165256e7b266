// Performs several runs on the same data, one after the other. Several processes can share the runs.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lab/training/run.h"

namespace tensorion::lab {

// Returns the name of a run. The subfolder of the run has the same name.
using RunName = std::function<std::string(const RunConfig&)>;
// Returns a name such as "sgd-seed0".
std::string seed_name(const RunConfig& config);

// Throws before anything is written if the folder or the subfolder of a run belongs to other results. See
// check_owner.
void check_folders(const std::vector<RunConfig>& configs, const RunOptions& options,
                   const RunName& name = seed_name);

// Throws the errors that run_all would throw about the runs, before anything is written. See check_run.
void check_runs(const std::vector<RunConfig>& configs, const DatasetSplits& data, const RunOptions& options,
                const RunName& name = seed_name);

// Each run has a subfolder of `options.folder`. The metrics.jsonl and summary.json of `options.folder` cover
// all finished runs, including those of earlier calls with the same folder. All folders are checked before
// anything is written. A live table is shown on a terminal. If one run diverges, the other runs continue. If
// another process is doing a run, this function does not repeat the run. If that process ends before the run
// is finished, this process takes over the run. Returns the summaries of `configs` in the same order, once
// all runs are finished.
std::vector<RunSummary> run_all(const std::vector<RunConfig>& configs, const DatasetSplits& data,
                                const RunOptions& options, const RunName& name = seed_name);

// Returns the finished runs that are listed in the summary.json of a folder. The result is empty if there is
// no such file.
std::vector<RunSummary> recorded_runs(const std::filesystem::path& folder);

}  // namespace tensorion::lab
