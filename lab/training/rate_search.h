// The search for learning rates: every method at every learning rate of one grid, then, if asked for, every
// method that has a fallback at every learning rate of the fallback.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "lab/text/result_table.h"
#include "lab/training/run.h"

namespace tensorion::lab {

struct RateSearchOptions {
  std::vector<double> lrs = {5e-4, 1e-3, 5e-3, 0.01, 0.05};
  std::vector<double> fallback_lrs = {};  // if empty, fallback_lr is not searched
  std::optional<int64_t> epochs = {};     // by default those of the configuration
  int64_t seed = 1000;                    // must not be one of those that are compared
};

// One method over one grid.
struct GridResult {
  double before = 0;
  std::optional<double> best = {};                // of the highest accuracy; none if every run diverged
  std::vector<std::optional<double>> accuracies;  // one per value of the grid; none if the run diverged
  // If the best value of the grid is at its edge: the next value beyond it, which is tried too.
  std::optional<double> beyond = {};
  std::optional<double> beyond_accuracy = {};
};

struct FoundRate {
  std::string method;
  GridResult lr;
  std::optional<GridResult> fallback_lr = {};  // at the best lr; none if it was not searched
};

// The runs of the first grid, marked as runs of a search: every configuration at every learning rate,
// labelled "muon-lr0.1". The runs of the second grid are labelled "muon-lr0.1-fallback0.01".
std::vector<RunConfig> search_runs(const std::vector<RunConfig>& configs, const RateSearchOptions& options);

// Whether the search has a second grid for this method.
bool searches_fallback(const RunConfig& config, const RateSearchOptions& options);

// Runs the grids in subfolders of `run_options.folder` and sets each configuration's lr, and then its
// fallback_lr, to the value with the highest accuracy after the last epoch, on the samples that the data
// holds out for validation. Of several such values the first in the grid counts. In the first grid
// fallback_lr is the configuration's own, or lr if it has none. If the best value is at the edge of its grid,
// the next value beyond it is tried as well: the quotient is that of the edge and its neighbor. A method that
// diverged at every value keeps its own.
std::vector<FoundRate> search_rates(std::vector<RunConfig>& configs, const DatasetSplits& data,
                                    const RateSearchOptions& options, const RunOptions& run_options);

// The learning rate beyond the edge of the grid at which `best` is; none if `best` is inside the grid or the
// grid has fewer than two values.
std::optional<double> rate_beyond(std::vector<double> lrs, double best);

// A table for each grid.
std::vector<ResultTable> search_tables(const std::vector<FoundRate>& found, const RateSearchOptions& options);
nlohmann::ordered_json to_json(const std::vector<FoundRate>& found, const RateSearchOptions& options);

}  // namespace tensorion::lab
