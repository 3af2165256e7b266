// A learning-rate sweep of one optimizer with one number of steps. All learning rates start from the same
// random trains.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/experiments/laplace_run.h"

namespace tensorion::lab {

// The runs at one learning rate over all seeds. Means are geometric because errors span many orders of
// magnitude.
struct LaplaceRate {
  double lr = 0;
  int64_t diverged = 0;  // number of runs that diverged
  // Means at the end; infinite if a run diverged.
  double error = 0;
  double residual = 0;
  // Time of the fastest run, because other processes can only slow a run down.
  double seconds_per_step = 0;
  // Means and shortest times for each recorded step; empty if a run diverged.
  std::vector<LaplacePoint> points = {};
};

struct LaplaceSweep {
  std::string optimizer;
  int64_t steps = 0;
  std::vector<LaplaceRate> rates;     // ascending
  std::vector<double> extended = {};  // learning rates that were tried beyond the edges of the grid

  // Returns the rate with the smallest error, or null if all runs diverged.
  const LaplaceRate* best() const;
  // Returns true if the best rate is the smallest or the largest one, in which case a rate beyond it may be
  // better.
  bool is_best_at_edge() const;
};

struct SweepGrid {
  std::vector<double> lrs;
  std::vector<int64_t> seeds;
  // Maximum number of learning rates to try beyond an edge while the best rate is at the edge.
  int64_t extensions = 0;
};

// `run` returns the run of a key.
LaplaceSweep sweep_rates(const std::string& optimizer, int64_t steps, const SweepGrid& grid,
                         const std::function<LaplaceRun(const LaplaceRunKey&)>& run);

}  // namespace tensorion::lab
