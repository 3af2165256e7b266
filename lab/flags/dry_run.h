// --dry-run: shows what a command would do and what a step costs, without training.
#pragma once

#include <CLI/App.hpp>
#include <vector>

#include "lab/flags/run_flags.h"
#include "lab/flags/run_plan.h"

namespace tensorion::lab {

// Prints all options in effect. For each method, prints the size of the model, how every tensor is updated,
// and the measured time and memory of a step.
void print_dry_run(const CLI::App& command, const std::vector<RunConfig>& configs, const DatasetSplits& data,
                   const Workload& workload);

}  // namespace tensorion::lab
