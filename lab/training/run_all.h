// Several runs on the same data, one after the other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/training/run.h"

namespace tensorion::lab {

// Names a run. Its subfolder has this name, too.
using RunName = std::function<std::string(const RunConfig&)>;
// "sgd-seed0".
std::string seed_name(const RunConfig& config);

// Each run has a subfolder of `options.folder`, which itself gets the metrics.jsonl and summary.json of all
// runs that are over. A terminal shows a live table. The other runs go on if one diverges.
std::vector<RunSummary> run_all(const std::vector<RunConfig>& configs, const DatasetSplits& data,
                                const RunOptions& options, const RunName& name = seed_name);

}  // namespace tensorion::lab
