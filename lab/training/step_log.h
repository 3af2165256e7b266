// The metrics of single steps, in steps.jsonl: an object a line, every --log-steps steps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "lab/training/metrics.h"

namespace tensorion::lab {

struct StepMetrics {
  int64_t step = 0;              // of the optimizer, 1, 2, ... over all epochs
  int64_t epoch = 0;             // 1, 2, ...
  double loss = 0;               // the mean since the last line
  double lr = 0;                 // of the first param group in this step
  double gradient_norm = 0;      // of this step, of all parameters together, before clipping
  double images_per_second = 0;  // since the last line
};

// Lines are kept in memory until flush().
class StepLog {
 public:
  StepLog(std::filesystem::path file, RunIdentity identity);

  void add(const StepMetrics& metrics);
  void flush();
  // Removes lines of later steps from the file: those of a run that was killed after its last checkpoint.
  void truncate(int64_t last_step);

 private:
  std::filesystem::path file_;
  RunIdentity identity_;
  std::string pending_;
};

}  // namespace tensorion::lab
