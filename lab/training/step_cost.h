// What a step of a run costs, measured on a model that is thrown away.
#pragma once

#include <cstdint>
#include <string>

#include "lab/training/run_config.h"

namespace tensorion::lab {

struct StepCost {
  std::string tensors;  // a table of what happens to each of them
  int64_t parameters = 0;
  int64_t weight_bytes = 0;  // with buffers
  int64_t gradient_bytes = 0;
  int64_t optimizer_bytes = 0;
  int64_t peak_bytes = 0;        // of all tensors at once
  double seconds = 0;            // of a step, all its batches together
  double optimizer_seconds = 0;  // the part of them inside the optimizer
  int64_t steps = 0;             // of the whole run
  double test_seconds = 0;       // of all its tests

  // Of the whole run.
  double run_seconds() const { return seconds * static_cast<double>(steps) + test_seconds; }
};

// Takes two steps, of which the second is measured, and tests on one batch.
StepCost measure_step(const RunConfig& config, const DatasetSplits& data);

}  // namespace tensorion::lab
