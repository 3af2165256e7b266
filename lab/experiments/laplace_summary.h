// The results of the sweeps on one problem: as JSON for summary.json, and as a table.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "lab/experiments/laplace_sweep.h"
#include "lab/text/result_table.h"

namespace tensorion::lab {

// Sweeps of one budget must be next to each other.
nlohmann::ordered_json to_json(const LaplaceProblem& problem, const std::vector<LaplaceSweep>& sweeps);

ResultTable laplace_table(const LaplaceProblem& problem, const std::vector<LaplaceSweep>& sweeps);

}  // namespace tensorion::lab
