// Learning-rate search: runs every method at every learning rate of one grid. Optionally, every method that
// has a fallback is then run at every learning rate of a second grid for the fallback.
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
  std::optional<int64_t> epochs = {};     // default: the epochs of the configuration
  int64_t seed = 1000;                    // must not be one of the seeds that are compared
};

// The results of one method on one grid.
struct GridResult {
  double before = 0;  // the value in the configuration before the search
  // The value with the highest accuracy; empty if every run diverged.
  std::optional<double> best = {};
  std::vector<std::optional<double>> accuracies;  // one per value of the grid; empty if the run diverged
  // If the best value is at the edge of the grid, the next value beyond it is tried too and stored here.
  std::optional<double> beyond = {};
  std::optional<double> beyond_accuracy = {};
};

struct FoundRate {
  std::string method;
  GridResult lr;
  std::optional<GridResult> fallback_lr = {};  // at the best lr; empty if it was not searched
};

// Returns the runs of the first grid, marked as runs of a search: every configuration at every learning rate,
// with labels such as "muon-lr0.1". The runs of the second grid have labels such as
// "muon-lr0.1-fallback0.01".
std::vector<RunConfig> search_runs(const std::vector<RunConfig>& configs, const RateSearchOptions& options);

// Returns true if the search has a second grid for this method.
bool searches_fallback(const RunConfig& config, const RateSearchOptions& options);

// Runs the grids in subfolders of `run_options.folder`. Sets the lr of each configuration, and then its
// fallback_lr, to the value with the highest accuracy after the last epoch. The accuracy is measured on the
// validation samples of the data. If several values have the highest accuracy, the first one in the grid is
// used. In the first grid, fallback_lr has the value of the configuration. If the configuration has none, it
// has the middle value of the second grid, or the value of lr if there is no second grid. If the best value
// is at the edge of its grid, the next value beyond it is tried as well. The ratio of this value to the edge
// equals the ratio of the edge to its neighbor. A method that diverged at every value keeps the value of its
// configuration.
std::vector<FoundRate> search_rates(std::vector<RunConfig>& configs, const DatasetSplits& data,
                                    const RateSearchOptions& options, const RunOptions& run_options);

// Returns the learning rate beyond the edge of the grid if `best` is at an edge. Returns nullopt if `best` is
// inside the grid or the grid has fewer than two values.
std::optional<double> rate_beyond(std::vector<double> lrs, double best);

// Returns one table for each grid.
std::vector<ResultTable> search_tables(const std::vector<FoundRate>& found, const RateSearchOptions& options);
nlohmann::ordered_json to_json(const std::vector<FoundRate>& found, const RateSearchOptions& options);

}  // namespace tensorion::lab
