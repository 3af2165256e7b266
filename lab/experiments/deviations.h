// How the runs of a preset differ from the paper's experiment.
#pragma once

#include <string>
#include <vector>

#include "lab/experiments/presets.h"

namespace tensorion::lab {

// A sentence for each difference, and for each choice that the paper leaves open. Empty if the preset is not
// an experiment of the paper. `configs` are those of the methods, all on the same data and model.
std::vector<std::string> deviations(const Preset& preset, const std::vector<RunConfig>& configs);

}  // namespace tensorion::lab
