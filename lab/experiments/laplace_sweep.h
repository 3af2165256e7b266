// A learning-rate sweep on one problem: every optimizer at every learning rate from the same random trains.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/experiments/laplace_run.h"
#include "lab/text/result_table.h"

namespace tensorion::lab {

// One optimizer at one learning rate, over the seeds. Means are geometric: errors span many decades.
struct LaplaceRate {
  double lr = 0;
  int64_t diverged = 0;  // how many of its runs
  // Means at the end; infinite if a run diverged.
  double error = 0;
  double residual = 0;
  double seconds_per_step = 0;
  std::vector<LaplacePoint> points = {};  // means, step by step; empty if a run diverged
};

struct LaplaceSweep {
  std::string optimizer;
  std::vector<LaplaceRate> rates;

  // The one with the smallest error; null if all diverged.
  const LaplaceRate* best() const;
};

// `run` gives the run at a learning rate and seed.
LaplaceSweep sweep_rates(const std::string& optimizer, const std::vector<double>& lrs,
                         const std::vector<int64_t>& seeds,
                         const std::function<LaplaceRun(double lr, int64_t seed)>& run);

nlohmann::ordered_json to_json(const LaplaceProblem& problem, const std::vector<LaplaceSweep>& sweeps);

// A row for each optimizer at its best learning rate.
ResultTable laplace_table(const LaplaceProblem& problem, const std::vector<LaplaceSweep>& sweeps);

}  // namespace tensorion::lab
