// Measures the time and memory of a training step for --dry-run.
#pragma once

#include <cstdint>
#include <string>

#include "lab/training/run_config.h"

namespace tensorion::lab {

struct StepCost {
  std::string tensors;  // the output of tensorion::describe: how each parameter is updated
  int64_t parameters = 0;
  int64_t weight_bytes = 0;  // parameters and buffers
  int64_t gradient_bytes = 0;
  int64_t optimizer_bytes = 0;
  int64_t peak_bytes = 0;        // the largest total size of all tensors at any time
  double seconds = 0;            // of one step, including all accumulated batches
  double optimizer_seconds = 0;  // the part of `seconds` inside the optimizer
  int64_t steps = 0;             // in the whole run
  double test_seconds = 0;       // of all tests in the whole run

  // The estimated time of the whole run.
  double run_seconds() const { return seconds * static_cast<double>(steps) + test_seconds; }
};

// Creates a temporary model, takes two training steps, measures the second one and evaluates one batch.
StepCost measure_step(const RunConfig& config, const DatasetSplits& data);

}  // namespace tensorion::lab
