// Several runs on the same data, one after the other. Several processes can share the work.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lab/training/run.h"

namespace tensorion::lab {

// Names a run. Its subfolder has this name, too.
using RunName = std::function<std::string(const RunConfig&)>;
// "sgd-seed0".
std::string seed_name(const RunConfig& config);

// Throws, before anything is written, if the folder or that of one of the runs belongs to other results:
// see check_owner.
void check_folders(const std::vector<RunConfig>& configs, const RunOptions& options,
                   const RunName& name = seed_name);

// Throws what run_all would throw about the runs, before anything is written: see check_run.
void check_runs(const std::vector<RunConfig>& configs, const DatasetSplits& data, const RunOptions& options,
                const RunName& name = seed_name);

// Each run has a subfolder of `options.folder`, which itself gets the metrics.jsonl and summary.json of all
// runs that are over, those from earlier calls on the same folder included. All folders are checked before
// anything is written. A terminal shows a live table. The other runs go on if one diverges. A run that
// another process is doing is left to that process; if the process ends too early, this one takes the run
// over. Returns the summaries of `configs`, in their order, when all of them are over.
std::vector<RunSummary> run_all(const std::vector<RunConfig>& configs, const DatasetSplits& data,
                                const RunOptions& options, const RunName& name = seed_name);

// The runs in a folder that are over, as its summary.json lists them; none if there is no such file.
std::vector<RunSummary> recorded_runs(const std::filesystem::path& folder);

}  // namespace tensorion::lab
