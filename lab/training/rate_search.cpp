#include "lab/training/rate_search.h"

#include <nlohmann/json.hpp>

#include "lab/text/strings.h"
#include "lab/training/run_all.h"

namespace tensorion::lab {

using nlohmann::ordered_json;

std::vector<FoundRate> search_rates(std::vector<RunConfig>& configs, const DatasetSplits& data,
                                    const RateSearchOptions& options, const RunOptions& run_options) {
  std::vector<RunConfig> grid;
  for (const auto& config : configs) {
    for (const double lr : options.lrs) {
      auto& run = grid.emplace_back(config);
      run.optimizer_options.lr(lr);
      run.seed = options.seed;
      run.training.epochs = options.epochs.value_or(run.training.epochs);
    }
  }
  const auto name = [](const RunConfig& config) {
    return method_name(config) + string_printf("-lr%g", config.optimizer_options.lr());
  };
  const auto runs = run_all(grid, data, run_options, name);
  std::vector<FoundRate> found;
  auto run = runs.begin();
  for (auto& config : configs) {
    const double before = config.optimizer_options.lr();
    auto& rate = found.emplace_back(FoundRate{method_name(config), before, before, {}});
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
    config.optimizer_options.lr(rate.lr);
  }
  return found;
}

ResultTable search_table(const std::vector<FoundRate>& found, const std::vector<double>& lrs) {
  ResultTable table{
      .title = "Test accuracy (%) by learning rate", .header = {"method"}, .rows = {}, .alignment = "l"};
  for (const double lr : lrs) table.header.push_back(string_printf("%g", lr));
  table.header.insert(table.header.end(), {"best", "before", ""});
  table.alignment.append(table.header.size() - 2, 'r').append("l");
  for (const auto& rate : found) {
    TableRow row{rate.method};
    for (const auto& accuracy : rate.accuracies)
      row.push_back(accuracy ? string_printf("%.2f", 100 * *accuracy) : "diverged");
    const bool is_edge = lrs.size() > 1 && (rate.lr == lrs.front() || rate.lr == lrs.back());
    row.insert(row.end(), {string_printf("%g", rate.lr), string_printf("%g", rate.lr_before),
                           is_edge ? "at the grid's edge" : ""});
    table.rows.push_back(std::move(row));
  }
  table.notes = {
      "(after the last epoch, one seed; chosen on the test set: the runs that follow have other seeds, but "
      "the "
      "same test set)"};
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
                       {"lr", rate.lr},
                       {"accuracies", accuracies}});
  }
  return {{"lrs", lrs}, {"methods", methods}};
}

}  // namespace tensorion::lab
