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

namespace {

std::optional<double> accuracy_of(const RunSummary& run) {
  const auto* last = run.diverged ? nullptr : run.final_epoch();
  return last == nullptr ? std::nullopt : std::optional(last->test_accuracy);
}

}  // namespace

std::optional<double> rate_beyond(std::vector<double> lrs, double best) {
  std::sort(lrs.begin(), lrs.end());
  lrs.erase(std::unique(lrs.begin(), lrs.end()), lrs.end());
  if (lrs.size() < 2) return std::nullopt;
  if (best == lrs.front()) return lrs[0] * (lrs[0] / lrs[1]);
  if (best == lrs.back()) return best * (best / lrs[lrs.size() - 2]);
  return std::nullopt;
}

std::vector<FoundRate> search_rates(std::vector<RunConfig>& configs, const DatasetSplits& data,
                                    const RateSearchOptions& options, const RunOptions& run_options) {
  const auto runs = run_all(search_runs(configs, options), data, run_options, method_name);
  std::vector<FoundRate> found;
  std::vector<RunConfig> extensions;
  auto run = runs.begin();
  for (const auto& config : configs) {
    auto& rate = found.emplace_back(FoundRate{
        .method = method_name(config), .lr_before = config.optimizer_options.lr(), .accuracies = {}});
    double best = -1;
    for (const double lr : options.lrs) {
      rate.accuracies.push_back(accuracy_of(*run++));
      if (rate.accuracies.back().value_or(-1) <= best) continue;
      best = *rate.accuracies.back();
      rate.lr = lr;
    }
    if (rate.lr) rate.beyond = rate_beyond(options.lrs, *rate.lr);
    if (!rate.beyond) continue;
    auto one = options;
    one.lrs = {*rate.beyond};
    extensions.push_back(search_runs({config}, one).front());
  }
  auto more = run_options;
  more.resume = true;  // the folder has the runs of the grid by now
  const auto extended =
      extensions.empty() ? std::vector<RunSummary>() : run_all(extensions, data, more, method_name);
  auto next = extended.begin();
  for (size_t i = 0; i < configs.size(); ++i) {
    auto& rate = found[i];
    if (rate.beyond) {
      rate.beyond_accuracy = accuracy_of(*next++);
      const auto best = std::max_element(rate.accuracies.begin(), rate.accuracies.end());
      if (rate.beyond_accuracy > *best) rate.lr = rate.beyond;
    }
    if (rate.lr) configs[i].optimizer_options.lr(*rate.lr);
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
    std::string remark;
    if (!rate.lr) {
      remark = string_printf("every run diverged: %g is used", rate.lr_before);
    } else if (rate.beyond) {
      remark = string_printf("the best was at the grid's edge: %g was tried, too: ", *rate.beyond) +
               (rate.beyond_accuracy ? string_printf("%.2f", 100 * *rate.beyond_accuracy) : "diverged");
    }
    row.insert(row.end(), {rate.lr ? string_printf("%g", *rate.lr) : "none",
                           string_printf("%g", rate.lr_before), remark});
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
    if (rate.beyond) {
      methods.back()["beyond"] = *rate.beyond;
      methods.back()["beyond_accuracy"] =
          rate.beyond_accuracy ? ordered_json(*rate.beyond_accuracy) : ordered_json(nullptr);
    }
  }
  return {{"lrs", lrs}, {"methods", methods}};
}

}  // namespace tensorion::lab
