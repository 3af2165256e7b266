// The results of a preset beside those of the paper.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lab/experiments/presets.h"
#include "lab/text/result_table.h"
#include "lab/training/comparison.h"

namespace tensorion::lab {

// Whether the runs are those that the paper's numbers are of: the preset's data, model and number of epochs.
bool matches_paper(const Preset& preset, const RunConfig& config);

// "CIFAR-10, ResNet-18 (width 0.25), 10 epochs".
std::string setup_title(const RunConfig& config);

// A row for each method, with its learning rates from `rates` and the binomial error of `test_samples`. The
// paper's numbers stand beside them only if the runs match them. `config` is that of any of the runs. The
// notes below the table include the deviations.
ResultTable preset_table(const Preset& preset, const std::string& scale,
                         const std::vector<OptimizerComparison>& rows, const RunConfig& config,
                         const std::map<std::string, std::string>& rates, int64_t test_samples,
                         const std::vector<std::string>& deviations);

}  // namespace tensorion::lab
