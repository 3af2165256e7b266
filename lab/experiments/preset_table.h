// The results of a preset beside those of the paper.
#pragma once

#include <string>
#include <vector>

#include "lab/experiments/presets.h"
#include "lab/text/result_table.h"
#include "lab/training/comparison.h"

namespace tensorion::lab {

// A row for each method. `configs` has the configuration of each.
ResultTable preset_table(const Preset& preset, const std::string& scale,
                         const std::vector<OptimizerComparison>& rows, const std::vector<RunConfig>& configs);

}  // namespace tensorion::lab
