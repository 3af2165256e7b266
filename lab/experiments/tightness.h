// Measures how tight the relaxation is on a momentum M from training. X is the solution of the online oracle
// for M, so
//   ||X||_sigma <= ||X||_Sigma = 1.
// The balanced unfolding is compared with the unfolding that has the largest nuclear norm:
//   gap = (max_tau ||M_(tau)||_* - ||M_(balanced)||_*) / max_tau ||M_(tau)||_*.
#pragma once

#include <ATen/core/Tensor.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/text/result_table.h"
#include "tensorion/unfolding.h"

namespace tensorion::lab {

struct Tightness {
  int64_t step = 0;  // number of steps before the measurement
  std::string layer;
  std::vector<int64_t> shape;
  Modes online;  // the unfolding with the largest nuclear norm
  Modes balanced;
  std::vector<double> nuclear_norms;  // of all unfoldings, in the order of unfoldings()
  double online_norm = 0;
  double balanced_norm = 0;
  double gap = 0;
  double spectral = 0;  // lower bound of ||X||_sigma
  // Bounds on ||X||_Sigma: <M, X> / ||M||_Sigma^dagger and ||X_(online)||_2.
  double relaxed_lower = 0;
  double relaxed_upper = 0;
};

// `momentum` must be nonzero and of effective order 3 or more.
Tightness measure_tightness(const at::Tensor& momentum, int64_t starts);

nlohmann::ordered_json to_json(const Tightness& value);
Tightness tightness_from_json(const nlohmann::json& json);

// The first table summarizes all measurements next to the paper's results. The second shows, for each layer,
// how often each unfolding has the largest nuclear norm.
ResultTable tightness_table(const std::vector<Tightness>& values);
ResultTable layer_table(const std::vector<Tightness>& values);

}  // namespace tensorion::lab
