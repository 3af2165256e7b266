// Describes how the runs of a preset differ from the paper's experiment.
#pragma once

#include <string>
#include <vector>

#include "lab/experiments/presets.h"

namespace tensorion::lab {

// Returns one sentence for each difference and for each choice that the paper leaves open. The result is
// empty if the preset is not an experiment of the paper. `configs` has one configuration for each method, all
// with the same data and model.
std::vector<std::string> deviations(const Preset& preset, const std::vector<RunConfig>& configs);

}  // namespace tensorion::lab
