// The search for learning rates: every method at every learning rate of one grid.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "lab/text/result_table.h"
#include "lab/training/run.h"

namespace tensorion::lab {

struct RateSearchOptions {
  std::vector<double> lrs = {5e-4, 1e-3, 5e-3, 0.01, 0.05};
  std::optional<int64_t> epochs = {};  // by default those of the configuration
  int64_t seed = 1000;                 // must not be one of those that are compared
};

// The result of a search for one method.
struct FoundRate {
  std::string method;
  double lr_before = 0;
  std::optional<double> lr = {};                  // of the highest accuracy; none if every run diverged
  std::vector<std::optional<double>> accuracies;  // for each of the grid; none if the run diverged
  // If the best of the grid is at its edge: the next one beyond it, which is tried, too, and its accuracy.
  std::optional<double> beyond = {};
  std::optional<double> beyond_accuracy = {};
};

// The runs of a search, marked as such: every configuration at every learning rate, labelled "sgd-lr0.1".
std::vector<RunConfig> search_runs(const std::vector<RunConfig>& configs, const RateSearchOptions& options);

// Runs the grid in subfolders of `run_options.folder` and sets each configuration's learning rate to the one
// with the highest accuracy after the last epoch (the first of them in the grid if there are several), on the
// samples that the data holds out for validation. If that is at the edge of the grid, the next learning rate
// beyond it is tried as well: as far from the edge as the edge is from its neighbor, by their quotient. A
// method that diverged at every learning rate keeps its own.
std::vector<FoundRate> search_rates(std::vector<RunConfig>& configs, const DatasetSplits& data,
                                    const RateSearchOptions& options, const RunOptions& run_options);

// The learning rate beyond the edge of the grid at which `best` is; none if `best` is inside the grid or the
// grid has fewer than two values.
std::optional<double> rate_beyond(std::vector<double> lrs, double best);

ResultTable search_table(const std::vector<FoundRate>& found, const std::vector<double>& lrs);
nlohmann::ordered_json to_json(const std::vector<FoundRate>& found, const std::vector<double>& lrs);

}  // namespace tensorion::lab
