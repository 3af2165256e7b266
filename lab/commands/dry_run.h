// --dry-run: what a command would do and what a step costs, without training.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <vector>

#include "lab/flags/run_flags.h"

namespace tensorion::lab {

// Prints all options in effect and, for each method, the model's size, what happens to every tensor, and the
// time and memory of a step, which is measured. `seeds` is the number of runs of each method.
void print_dry_run(const CLI::App& command, const RunFlags& flags, const std::vector<RunConfig>& configs,
                   const DatasetSplits& data, int64_t seeds);

}  // namespace tensorion::lab
