// What a command is about to do, before it trains.
#pragma once

#include <cstdint>
#include <vector>

#include "lab/training/run_config.h"

namespace tensorion::lab {

// The runs of each method.
struct Workload {
  int64_t runs = 1;
  int64_t epochs = 0;  // of all of them together
};

// Says on the standard error what is about to be done: data, model, each method with its learning rate and
// schedule, the number of runs, and an estimate of their time, for which some steps of each method are taken
// on weights that are thrown away.
void print_plan(const std::vector<RunConfig>& configs, const DatasetSplits& data, const Workload& workload);

}  // namespace tensorion::lab
