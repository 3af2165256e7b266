// The smallest eigenpair of the Laplacian in tensor-train form: an optimizer minimizes the Rayleigh quotient
// of a train over its cores.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/training/schedule.h"
#include "tensorion/optimizer.h"

namespace tensorion::lab {

struct LaplaceProblem {
  int64_t d = 10;    // number of dimensions
  int64_t n = 32;    // grid points in each dimension
  int64_t rank = 8;  // rank of the train

  std::string str() const;  // "10x32x8"
  static LaplaceProblem parse(const std::string& text);
};

struct LaplaceOptions {
  int64_t records = 50;  // number of recorded points in addition to the starting point
  ScheduleOptions schedule = {.name = "constant"};
  double momentum = 0.95;     // for tensorion, online and muon
  double sgd_momentum = 0.9;  // for sgd-momentum
  std::string polar = "auto";
  at::ScalarType dtype = at::kDouble;
};

// The optimizers are tensorion (balanced unfoldings), online (the unfolding with the largest nuclear norm),
// muon (cores flattened to r x n r), sgd, sgd-momentum and adam. None of them uses weight decay. Each
// optimizer updates all cores.
const std::vector<std::string>& laplace_optimizers();
TensorionOptions laplace_optimizer(const std::string& name, double lr, const LaplaceOptions& options);

struct LaplacePoint {
  int64_t step = 0;     // number of steps before this point
  double quotient = 0;  // Rayleigh quotient
  double error = 0;     // |quotient - smallest eigenvalue| / smallest eigenvalue
  double residual = 0;  // ||A x - quotient x|| / (smallest eigenvalue ||x||)
  double seconds = 0;   // time of the steps so far, without the time to record the points
};

// Identifies a run on a problem. The schedule depends on `steps`, so a run cannot be reused for another
// budget.
struct LaplaceRunKey {
  std::string optimizer;
  int64_t steps = 0;
  double lr = 0;
  int64_t seed = 0;

  auto operator<=>(const LaplaceRunKey&) const = default;
};

struct LaplaceRun {
  LaplaceRunKey key;
  bool diverged = false;  // a value or gradient was not finite; the points end before it
  std::vector<LaplacePoint> points = {};

  // The error of the last point; infinite if the run diverged.
  double final_error() const;
};

// Calls `after_step` after every step. If it throws, the run ends.
LaplaceRun minimize_quotient(
    const LaplaceProblem& problem, const LaplaceRunKey& key, const LaplaceOptions& options,
    const std::function<void()>& after_step = [] {});

nlohmann::ordered_json to_json(const LaplacePoint& point);
LaplacePoint laplace_point_from_json(const nlohmann::json& json);

}  // namespace tensorion::lab
