// The metrics of individual steps. steps.jsonl gets one line every --log-steps steps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "lab/training/metrics.h"

namespace tensorion::lab {

struct StepMetrics {
  int64_t step = 0;              // optimizer step, counted from 1 over all epochs
  int64_t epoch = 0;             // counted from 1
  double loss = 0;               // mean since the previous line
  double lr = 0;                 // of the first param group in this step
  double gradient_norm = 0;      // of all parameters together in this step, before clipping
  double images_per_second = 0;  // since the previous line
};

// Buffers lines in memory until flush() is called.
class StepLog {
 public:
  StepLog(std::filesystem::path file, RunIdentity identity);

  void add(const StepMetrics& metrics);
  void flush();
  // Removes the lines of later steps from the file, which a run logged before it was killed.
  void truncate(int64_t last_step);

 private:
  std::filesystem::path file_;
  RunIdentity identity_;
  std::string pending_;
};

}  // namespace tensorion::lab
