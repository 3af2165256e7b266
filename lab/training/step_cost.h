// What a step of a run costs, measured on a model that is thrown away.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/training/run_config.h"

namespace tensorion::lab {

// What the optimizer does with a parameter.
struct TensorPlan {
  std::string name;
  std::vector<int64_t> shape;
  std::string algorithm;  // tensorion, adamw or sgd
  bool is_online = false;
  // Of tensorion, if the unfolding is not chosen online: it and its matrix.
  Modes modes = {};
  int64_t rows = 0;
  int64_t cols = 0;
};

struct StepCost {
  std::vector<TensorPlan> plans;
  int64_t parameters = 0;
  int64_t weight_bytes = 0;  // with buffers
  int64_t gradient_bytes = 0;
  int64_t optimizer_bytes = 0;
  int64_t peak_bytes = 0;        // of all tensors at once
  double seconds = 0;            // of a step, all its batches together
  double optimizer_seconds = 0;  // the part of them inside the optimizer
  int64_t steps = 0;             // of the whole run
};

// Takes two steps and measures the second.
StepCost measure_step(const RunConfig& config, const DatasetSplits& data);

}  // namespace tensorion::lab
