#include "lab/commands/rate_search.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <nlohmann/json.hpp>

#include "lab/commands/flag_values.h"
#include "lab/commands/run_all.h"
#include "lab/text.h"

namespace tensorion::lab {

using nlohmann::ordered_json;

void add_rate_search_flags(CLI::App& command, RateSearchOptions& options) {
  const std::string group = "Learning rate search";
  command
      .add_flag("--grid", options.wanted,
                "Search a learning rate for every method first, on the same grid, and compare with those")
      ->group(group);
  command.add_option("--grid-lrs", options.lrs, "The grid")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(group);
  command.add_option("--grid-epochs", options.epochs, "Epochs of its runs (default: --epochs)")
      ->check(positive_count())
      ->group(group);
  command.add_option("--grid-seed", options.seed, "Seed of its runs")
      ->check(non_negative_count())
      ->capture_default_str()
      ->group(group);
}

std::vector<FoundRate> search_rates(std::vector<RunConfig>& configs, const DatasetSpec& data,
                                    const RunFlags& flags, const RateSearchOptions& options,
                                    const std::filesystem::path& folder) {
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
    return method_name(config) + format("-lr%g", config.optimizer_options.lr());
  };
  const auto runs = run_all(grid, data, flags, folder, name);
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
  for (const double lr : lrs) table.header.push_back(format("%g", lr));
  table.header.insert(table.header.end(), {"best", "before", ""});
  table.alignment.append(table.header.size() - 2, 'r').append("l");
  for (const auto& rate : found) {
    TableRow row{rate.method};
    for (const auto& accuracy : rate.accuracies)
      row.push_back(accuracy ? format("%.2f", 100 * *accuracy) : "diverged");
    const bool is_edge = lrs.size() > 1 && (rate.lr == lrs.front() || rate.lr == lrs.back());
    row.insert(row.end(),
               {format("%g", rate.lr), format("%g", rate.lr_before), is_edge ? "at the grid's edge" : ""});
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
