// The smallest eigenpair of the Laplacian in tensor-train form: the Rayleigh quotient of a train is minimized
// over its cores by an optimizer that knows nothing of either.
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
  int64_t d = 10;    // dimensions
  int64_t n = 32;    // grid points in each
  int64_t rank = 8;  // of the train

  std::string str() const;  // "10x32x8"
  static LaplaceProblem parse(const std::string& text);
};

struct LaplaceOptions {
  int64_t steps = 1000;
  int64_t records = 50;  // points of a run's record beside the start
  ScheduleOptions schedule = {.name = "constant"};
  double momentum = 0.95;     // of tensorion and muon
  double sgd_momentum = 0.9;  // of sgd-momentum
  std::string polar = "auto";
  at::ScalarType dtype = at::kDouble;
};

// tensorion (balanced unfoldings), online (tensorion on the unfolding of the largest nuclear norm), muon
// (cores flattened to r x n r), sgd, sgd-momentum, adam. None decays weights, and all cores go to the one
// named.
const std::vector<std::string>& laplace_optimizers();
TensorionOptions laplace_optimizer(const std::string& name, double lr, const LaplaceOptions& options);

struct LaplacePoint {
  int64_t step = 0;     // done before it
  double quotient = 0;  // the Rayleigh quotient
  double error = 0;     // |quotient - smallest eigenvalue| / smallest eigenvalue
  double residual = 0;  // ||A x - quotient x|| / (smallest eigenvalue ||x||)
  double seconds = 0;   // spent on the steps so far, without the record
};

struct LaplaceRun {
  std::string optimizer;
  double lr = 0;
  int64_t seed = 0;
  bool diverged = false;  // a value or gradient was not finite; the record ends before
  std::vector<LaplacePoint> points = {};

  // Of the last point; infinite if the run diverged.
  double final_error() const;
};

// Calls `after_step` after every step; what it throws ends the run.
LaplaceRun minimize_quotient(
    const LaplaceProblem& problem, const std::string& optimizer, double lr, int64_t seed,
    const LaplaceOptions& options, const std::function<void()>& after_step = [] {});

nlohmann::ordered_json to_json(const LaplacePoint& point);
LaplacePoint laplace_point_from_json(const nlohmann::json& json);

}  // namespace tensorion::lab
