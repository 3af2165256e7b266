// Optimizers by name. All are configurations of the library's Tensorion optimizer:
//
//   sgd        SGD with momentum for all parameters
//   adamw      AdamW for all parameters
//   muon       orthogonalizes kernels that are flattened to (out, in * h * w)
//   tensorion  orthogonalizes kernels that are unfolded by the option `unfolding`
//
// With muon and tensorion, the fallback updates the other parameters.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tensorion/optimizer.h"

namespace tensorion::lab {

// sgd, adamw, muon, tensorion.
const std::vector<std::string>& optimizer_names();

// Returns the options that make Tensorion(parameters, options) this optimizer.
TensorionOptions default_options(const std::string& optimizer);

// Returns true if the optimizer has the option. The names are the keys of to_json.
bool has_option(const std::string& optimizer, const std::string& option);

// Returns the options of the optimizer with their values.
nlohmann::ordered_json to_json(const std::string& optimizer, const TensorionOptions& options);

}  // namespace tensorion::lab
