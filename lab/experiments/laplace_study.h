// All runs of `tensorion laplace`: every problem, budget, optimizer, learning rate and seed.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lab/experiments/laplace_record.h"
#include "lab/experiments/laplace_sweep.h"
#include "lab/text/result_table.h"
#include "lab/text/terminal.h"

namespace tensorion::lab {

struct LaplaceStudy {
  std::vector<LaplaceProblem> problems;
  std::vector<std::string> optimizers;
  std::vector<int64_t> budgets;  // numbers of steps; each budget has its own runs with a full schedule
  SweepGrid grid;
  LaplaceOptions options;

  // The number of runs, not counting those beyond the edges of the grid.
  size_t runs() const;
};

// The time of a step for every problem and optimizer, measured on a few steps.
class LaplaceCosts {
 public:
  explicit LaplaceCosts(const LaplaceStudy& study);

  double seconds_per_step(const LaplaceProblem& problem, const std::string& optimizer) const;
  // Returns the time of all runs of the study that are not in the record, not counting runs beyond the edges
  // of the grid.
  double seconds(const LaplaceStudy& study, const LaplaceRecord& record) const;

 private:
  std::map<std::pair<std::string, std::string>, double> seconds_;  // by problem and optimizer
};

ResultTable cost_table(const LaplaceStudy& study, const LaplaceCosts& costs);

// Reads each run from the record if it is there. Otherwise performs the run and adds it to the record. Shows
// the progress on a terminal.
class LaplaceRunner {
 public:
  LaplaceRunner(const LaplaceStudy& study, LaplaceRecord& record);
  ~LaplaceRunner();
  LaplaceRunner(const LaplaceRunner&) = delete;
  LaplaceRunner& operator=(const LaplaceRunner&) = delete;

  // Returns one sweep for each budget and optimizer, in this order. Throws Interrupted after SIGINT or
  // SIGTERM.
  std::vector<LaplaceSweep> sweep(const LaplaceProblem& problem);

 private:
  const LaplaceRun& run(const LaplaceProblem& problem, const LaplaceRunKey& key);

  const LaplaceStudy& study_;
  LaplaceRecord& record_;
  Terminal terminal_;
  size_t total_;      // number of runs, including those beyond the edges of the grid so far
  size_t count_ = 0;  // number of finished runs
};

}  // namespace tensorion::lab
