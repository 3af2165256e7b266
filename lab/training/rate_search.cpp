#include "lab/training/rate_search.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lab/text/strings.h"
#include "lab/training/run_all.h"

namespace tensorion::lab {

using nlohmann::ordered_json;

std::vector<RunConfig> search_runs(const std::vector<RunConfig>& configs, const RateSearchOptions& options) {
  std::vector<RunConfig> runs;
  for (const auto& config : configs) {
    for (const double lr : options.lrs) {
      auto& run = runs.emplace_back(config);
      run.optimizer_options.lr(lr);
      run.label = method_name(config) + string_printf("-lr%g", lr);
      run.grid = true;
      run.seed = options.seed;
      run.training.epochs = options.epochs.value_or(run.training.epochs);
    }
  }
  return runs;
}

std::vector<FoundRate> search_rates(std::vector<RunConfig>& configs, const DatasetSplits& data,
                                    const RateSearchOptions& options, const RunOptions& run_options) {
  const auto runs = run_all(search_runs(configs, options), data, run_options, method_name);
  std::vector<FoundRate> found;
  auto run = runs.begin();
  for (auto& config : configs) {
    auto& rate = found.emplace_back(FoundRate{
        .method = method_name(config), .lr_before = config.optimizer_options.lr(), .accuracies = {}});
    double best = -1;
    for (const double lr : options.lrs) {
      const auto* last = run->diverged ? nullptr : run->final_epoch();
      rate.accuracies.push_back(last == nullptr ? std::nullopt : std::optional(last->test_accuracy));
      if (last != nullptr && last->test_accuracy > best) {
        best = last->test_accuracy;
        rate.lr = lr;
      }
      ++run;
    }
    if (rate.lr) config.optimizer_options.lr(*rate.lr);
  }
  return found;
}

ResultTable search_table(const std::vector<FoundRate>& found, const std::vector<double>& lrs) {
  ResultTable table{.title = "Validation accuracy (%) by learning rate",
                    .header = {"method"},
                    .rows = {},
                    .alignment = "l"};
  for (const double lr : lrs) table.header.push_back(string_printf("%g", lr));
  table.header.insert(table.header.end(), {"best", "before", ""});
  table.alignment.append(table.header.size() - 2, 'r').append("l");
  for (const auto& rate : found) {
    TableRow row{rate.method};
    for (const auto& accuracy : rate.accuracies)
      row.push_back(accuracy ? string_printf("%.2f", 100 * *accuracy) : "diverged");
    const auto [smallest, largest] = std::minmax_element(lrs.begin(), lrs.end());
    const bool is_edge = lrs.size() > 1 && (rate.lr == *smallest || rate.lr == *largest);
    row.insert(row.end(),
               {rate.lr ? string_printf("%g", *rate.lr) : "none", string_printf("%g", rate.lr_before),
                !rate.lr  ? "every run diverged: " + string_printf("%g", rate.lr_before) + " is used"
                : is_edge ? "at the grid's edge"
                          : ""});
    table.rows.push_back(std::move(row));
  }
  table.notes = {
      "(after the last epoch, one seed, on samples held out from the training set; no run has seen the test "
      "set)"};
  return table;
}

ordered_json to_json(const std::vector<FoundRate>& found, const std::vector<double>& lrs) {
  auto methods = ordered_json::array();
  for (const auto& rate : found) {
    auto accuracies = ordered_json::array();
    for (const auto& accuracy : rate.accuracies) {
      accuracies.push_back(accuracy ? ordered_json(*accuracy) : ordered_json(nullptr));
    }
    methods.push_back({{"method", rate.method},
                       {"lr_before", rate.lr_before},
                       {"lr", rate.lr ? ordered_json(*rate.lr) : ordered_json(nullptr)},
                       {"accuracies", accuracies}});
  }
  return {{"lrs", lrs}, {"methods", methods}};
}

}  // namespace tensorion::lab
