// Several runs on the same data, one after the other.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lab/commands/run_flags.h"

namespace tensorion::lab {

// A run's folder below that of all; it names the run.
using RunName = std::function<std::string(const RunConfig&)>;
// "sgd-seed0".
std::string seed_name(const RunConfig& config);

// On a terminal with a live table. `folder` has metrics.jsonl and summary.json of all that is over. A run
// that diverges does not keep the others from theirs.
std::vector<RunSummary> run_all(const std::vector<RunConfig>& configs, const DatasetSpec& data,
                                const RunFlags& flags, const std::filesystem::path& folder,
                                const RunName& name = seed_name);

}  // namespace tensorion::lab
