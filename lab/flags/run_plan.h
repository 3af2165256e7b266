// Shows what a command is about to do before it trains.
#pragma once

#include <cstdint>
#include <vector>

#include "lab/training/run_config.h"

namespace tensorion::lab {

// The amount of training for each method.
struct Workload {
  int64_t runs = 1;
  int64_t epochs = 0;  // total over these runs
};

// Prints to standard error what the command is about to do: the data, the model, each method with its
// learning rate and schedule, the number of runs, and an estimate of their time. For the estimate, a few
// steps of each method are measured on a model that is then discarded.
void print_plan(const std::vector<RunConfig>& configs, const DatasetSplits& data, const Workload& workload);

}  // namespace tensorion::lab
