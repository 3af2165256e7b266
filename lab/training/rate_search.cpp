#include "lab/training/rate_search.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "lab/io/json_file.h"
#include "lab/text/strings.h"
#include "lab/training/run_all.h"

namespace tensorion::lab {
namespace {

using nlohmann::ordered_json;

enum class Rate { kLr, kFallbackLr };

double value_of(const RunConfig& config, Rate rate) {
  const auto& options = config.optimizer_options;
  return rate == Rate::kLr ? options.lr() : options.fallback_lr().value_or(options.lr());
}

void set_rate(RunConfig& config, Rate rate, double value) {
  if (rate == Rate::kLr) {
    config.optimizer_options.lr(value);
  } else {
    config.optimizer_options.fallback_lr(value);
  }
}

RunConfig search_run(const RunConfig& config, Rate rate, double value, const RateSearchOptions& options) {
  auto run = config;
  set_rate(run, rate, value);
  run.label = method_name(config) + string_printf("-lr%g", run.optimizer_options.lr());
  if (rate == Rate::kFallbackLr) run.label += string_printf("-fallback%g", value);
  run.grid = true;
  run.seed = options.seed;
  run.training.epochs = options.epochs.value_or(run.training.epochs);
  return run;
}

class Search {
 public:
  Search(const DatasetSplits& data, const RateSearchOptions& options, RunOptions run_options)
      : data_(data), options_(options), run_options_(std::move(run_options)) {}

  // Sets the rate of each configuration to the best value of the grid.
  std::vector<GridResult> search(const std::vector<RunConfig*>& configs, Rate rate,
                                 const std::vector<double>& grid) {
    std::vector<RunConfig> runs;
    for (const auto* config : configs) {
      reuse(*config, rate, grid);
      for (const double value : grid) runs.push_back(search_run(*config, rate, value, options_));
    }
    run(runs);
    std::vector<GridResult> results;
    std::vector<RunConfig> extensions;
    for (const auto* config : configs) {
      auto& result = results.emplace_back(best_of(*config, rate, grid));
      if (result.best) result.beyond = rate_beyond(grid, *result.best);
      if (result.beyond) extensions.push_back(search_run(*config, rate, *result.beyond, options_));
    }
    run(extensions);
    for (size_t i = 0; i < configs.size(); ++i) {
      auto& result = results[i];
      if (result.beyond) {
        result.beyond_accuracy = accuracy(*configs[i], rate, *result.beyond);
        const auto best = std::max_element(result.accuracies.begin(), result.accuracies.end());
        if (result.beyond_accuracy > *best) result.best = result.beyond;
      }
      if (result.best) set_rate(*configs[i], rate, *result.best);
    }
    return results;
  }

 private:
  std::optional<double> accuracy(const RunConfig& config, Rate rate, double value) const {
    return accuracies_.at(search_run(config, rate, value, options_).label);
  }

  GridResult best_of(const RunConfig& config, Rate rate, const std::vector<double>& grid) const {
    GridResult result{.before = value_of(config, rate), .accuracies = {}};
    double best = -1;
    for (const double value : grid) {
      result.accuracies.push_back(accuracy(config, rate, value));
      if (result.accuracies.back().value_or(-1) <= best) continue;
      best = result.accuracies.back().value();
      result.best = value;
    }
    return result;
  }

  // If the second grid contains the fallback_lr with which the first grid found the best lr, that run is
  // reused instead of repeated.
  void reuse(const RunConfig& config, Rate rate, const std::vector<double>& grid) {
    const double own = value_of(config, rate);
    if (rate == Rate::kLr || std::find(grid.begin(), grid.end(), own) == grid.end()) return;
    accuracies_[search_run(config, rate, own, options_).label] =
        accuracy(config, Rate::kLr, config.optimizer_options.lr());
  }

  void run(const std::vector<RunConfig>& configs) {
    std::vector<RunConfig> missing;
    for (const auto& config : configs) {
      if (!accuracies_.contains(config.label)) missing.push_back(config);
    }
    if (missing.empty()) return;
    for (const auto& summary : run_all(missing, data_, run_options_, method_name)) {
      const auto* last = summary.diverged ? nullptr : summary.final_epoch();
      accuracies_[summary.identity.label] =
          last == nullptr ? std::nullopt : std::optional(last->test_accuracy);
    }
    run_options_.resume = true;  // the folder now contains runs of the search
  }

  const DatasetSplits& data_;
  const RateSearchOptions& options_;
  RunOptions run_options_;
  std::map<std::string, std::optional<double>> accuracies_;  // by label; empty if the run diverged
};

// Without this, fallback_lr would follow lr, and a good lr could be missed because it is a bad fallback_lr.
void set_initial_fallback_lr(RunConfig& config, const RateSearchOptions& options) {
  if (!searches_fallback(config, options) || config.optimizer_options.fallback_lr()) return;
  auto grid = options.fallback_lrs;
  std::sort(grid.begin(), grid.end());
  config.optimizer_options.fallback_lr(grid[grid.size() / 2]);
}

}  // namespace

std::vector<RunConfig> search_runs(const std::vector<RunConfig>& configs, const RateSearchOptions& options) {
  std::vector<RunConfig> runs;
  for (auto config : configs) {
    set_initial_fallback_lr(config, options);
    for (const double lr : options.lrs) runs.push_back(search_run(config, Rate::kLr, lr, options));
  }
  return runs;
}

bool searches_fallback(const RunConfig& config, const RateSearchOptions& options) {
  return !options.fallback_lrs.empty() && has_option(config.optimizer, "fallback_lr") &&
         config.optimizer_options.fallback().has_value();
}

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
  Search search(data, options, run_options);
  const auto before = configs;
  std::vector<RunConfig*> all;
  for (auto& config : configs) {
    set_initial_fallback_lr(config, options);
    all.push_back(&config);
  }
  const auto lrs = search.search(all, Rate::kLr, options.lrs);
  std::vector<FoundRate> found;
  std::vector<RunConfig*> with_fallback;
  for (size_t i = 0; i < configs.size(); ++i) {
    found.push_back({.method = method_name(configs[i]), .lr = lrs[i]});
    if (!lrs[i].best) configs[i] = before[i];
    if (lrs[i].best && searches_fallback(configs[i], options)) with_fallback.push_back(&configs[i]);
  }
  const auto fallback_lrs = search.search(with_fallback, Rate::kFallbackLr, options.fallback_lrs);
  for (size_t i = 0; i < with_fallback.size(); ++i)
    found[with_fallback[i] - configs.data()].fallback_lr = fallback_lrs[i];
  return found;
}

namespace {

std::string percent(const std::optional<double>& accuracy) {
  return accuracy ? string_printf("%.2f", 100 * *accuracy) : "diverged";
}

std::string remark(const GridResult& result) {
  if (!result.best) return string_printf("all runs diverged, so %g is used", result.before);
  if (!result.beyond) return "";
  return string_printf("the best rate is at the edge of the grid; accuracy at %g: ", *result.beyond) +
         percent(result.beyond_accuracy) + (result.best == result.beyond ? ", which is better" : "");
}

ResultTable make_table(const std::string& title, const std::vector<double>& grid) {
  ResultTable table{.title = title, .header = {"method"}, .rows = {}, .alignment = "l"};
  for (const double value : grid) table.header.push_back(string_printf("%g", value));
  table.header.insert(table.header.end(), {"best", "before", ""});
  table.alignment.append(table.header.size() - 2, 'r').append("l");
  table.notes = {
      "(after the last epoch, with one seed, on samples that were held out from the training set; the test "
      "set "
      "was not used)"};
  return table;
}

void add_row(ResultTable& table, const std::string& name, const GridResult& result) {
  auto& row = table.rows.emplace_back(TableRow{name});
  for (const auto& accuracy : result.accuracies) row.push_back(percent(accuracy));
  row.insert(row.end(), {result.best ? string_printf("%g", *result.best) : "none",
                         string_printf("%g", result.before), remark(result)});
}

// Returns an object with the chosen value under `name` and the results that led to the choice.
ordered_json to_json(const GridResult& result, const std::string& name) {
  auto accuracies = ordered_json::array();
  for (const auto& accuracy : result.accuracies) accuracies.push_back(or_null(accuracy));
  ordered_json out{
      {name + "_before", result.before}, {name, or_null(result.best)}, {"accuracies", accuracies}};
  if (result.beyond) {
    out["beyond"] = *result.beyond;
    out["beyond_accuracy"] = or_null(result.beyond_accuracy);
  }
  return out;
}

}  // namespace

std::vector<ResultTable> search_tables(const std::vector<FoundRate>& found,
                                       const RateSearchOptions& options) {
  std::vector<ResultTable> tables{make_table("Validation accuracy (%) by learning rate", options.lrs)};
  auto second = make_table("Validation accuracy (%) by the fallback's learning rate", options.fallback_lrs);
  for (const auto& rate : found) {
    add_row(tables.front(), rate.method, rate.lr);
    if (rate.fallback_lr)
      add_row(second, rate.method + string_printf(" (lr %g)", rate.lr.best.value()), *rate.fallback_lr);
  }
  if (!second.rows.empty()) tables.push_back(std::move(second));
  return tables;
}

ordered_json to_json(const std::vector<FoundRate>& found, const RateSearchOptions& options) {
  auto methods = ordered_json::array();
  for (const auto& rate : found) {
    auto& method = methods.emplace_back(ordered_json{{"method", rate.method}});
    method.update(to_json(rate.lr, "lr"));
    if (rate.fallback_lr) method["fallback"] = to_json(*rate.fallback_lr, "fallback_lr");
  }
  ordered_json out{{"lrs", options.lrs}};
  if (!options.fallback_lrs.empty()) out["fallback_lrs"] = options.fallback_lrs;
  out["methods"] = methods;
  return out;
}

}  // namespace tensorion::lab
