// The search for learning rates: every method at every learning rate of one grid.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "lab/commands/run_flags.h"
#include "lab/experiments/result_table.h"

namespace tensorion::lab {

struct RateSearchOptions {
  bool wanted = false;
  std::vector<double> lrs = {5e-4, 1e-3, 5e-3, 0.01, 0.05};
  std::optional<int64_t> epochs = {};  // nothing: as many as the runs have
  int64_t seed = 1000;                 // not one of those that are compared
};

// The flags --grid, --grid-lrs, --grid-epochs, --grid-seed.
void add_rate_search_flags(CLI::App& command, RateSearchOptions& options);

// What a search found for one method.
struct FoundRate {
  std::string method;
  double lr_before = 0;
  double lr = 0;                                  // of the highest accuracy
  std::vector<std::optional<double>> accuracies;  // for each of the grid; nothing where it diverged
};

// Runs the grid in `folder` and puts the learning rate with the highest test accuracy after the last epoch
// (the smallest such) into each configuration. A method that diverged everywhere keeps its own.
std::vector<FoundRate> search_rates(std::vector<RunConfig>& configs, const DatasetSpec& data,
                                    const RunFlags& flags, const RateSearchOptions& options,
                                    const std::filesystem::path& folder);

ResultTable search_table(const std::vector<FoundRate>& found, const std::vector<double>& lrs);
nlohmann::ordered_json to_json(const std::vector<FoundRate>& found, const std::vector<double>& lrs);

}  // namespace tensorion::lab
