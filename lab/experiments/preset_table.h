// A table of the results of a preset next to the results of the paper.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lab/experiments/presets.h"
#include "lab/text/result_table.h"
#include "lab/training/comparison.h"

namespace tensorion::lab {

// Returns true if the paper's results apply to the runs: they use the data, the model and the number of
// epochs of the preset.
bool matches_paper(const Preset& preset, const RunConfig& config);

// Returns a title such as "CIFAR-10, ResNet-18 (width 0.25), 10 epochs".
std::string setup_title(const RunConfig& config);

// Returns a table with one row for each method, including its learning rates from `rates` and the binomial
// error for `test_samples`. The paper's results are included only if they apply to the runs. `config` is the
// configuration of any run. The notes below the table include the deviations.
ResultTable preset_table(const Preset& preset, const std::string& scale,
                         const std::vector<OptimizerComparison>& rows, const RunConfig& config,
                         const std::map<std::string, std::string>& rates, int64_t test_samples,
                         const std::vector<std::string>& deviations);

}  // namespace tensorion::lab
