// How tight the relaxation is on a momentum M met in training, with X the solution of the online oracle on
// it:
//   ||X||_sigma <= ||X||_Sigma = 1, and the balanced unfolding against the one with the largest nuclear norm,
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
  int64_t step = 0;  // steps done
  std::string layer;
  std::vector<int64_t> shape;
  Modes online;  // the unfolding of the largest nuclear norm
  Modes balanced;
  std::vector<double> nuclear_norms;  // of all unfoldings, in their order
  double online_norm = 0;
  double balanced_norm = 0;
  double gap = 0;
  double spectral = 0;  // ||X||_sigma, from below
  // lower <= ||X||_Sigma <= upper: <M, X> / ||M||_Sigma^dagger and ||X_(online)||_2.
  double relaxed_lower = 0;
  double relaxed_upper = 0;
};

// Of a momentum of effective order 3 or more that is not zero.
Tightness measure_tightness(const at::Tensor& momentum, int64_t starts);

nlohmann::ordered_json to_json(const Tightness& value);
Tightness tightness_from_json(const nlohmann::json& json);

// All measurements in one table beside the paper's numbers, and by layer: how often which set wins.
ResultTable tightness_table(const std::vector<Tightness>& values);
ResultTable layer_table(const std::vector<Tightness>& values);

}  // namespace tensorion::lab
