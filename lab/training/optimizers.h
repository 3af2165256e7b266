// The optimizers by name. All are settings of the library's one:
//
//   sgd        SGD with momentum on all parameters
//   adamw      AdamW on all parameters
//   muon       kernels flattened to (out, in h w) and orthogonalized, the rest by the fallback
//   tensorion  kernels unfolded as `unfolding` says and orthogonalized, the rest by the fallback
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tensorion/optimizer.h"

namespace tensorion::lab {

// sgd, adamw, muon, tensorion.
const std::vector<std::string>& optimizer_names();

// What Tensorion(parameters, options) must be given to be this optimizer.
TensorionOptions default_options(const std::string& optimizer);

// Whether the optimizer has the option, by its name in to_json.
bool has_option(const std::string& optimizer, const std::string& option);

// The options that the optimizer has and their values.
nlohmann::ordered_json to_json(const std::string& optimizer, const TensorionOptions& options);

}  // namespace tensorion::lab
