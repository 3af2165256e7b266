#include "lab/experiments/compare_results.h"

#include <iostream>
#include <map>

#include "lab/experiments/figures.h"
#include "lab/experiments/preset_table.h"
#include "lab/io/json_file.h"
#include "lab/text/strings.h"
#include "lab/training/comparison.h"
#include "lab/training/paired_difference.h"
#include "lab/training/result_folder.h"
#include "lab/training/run_all.h"

namespace tensorion::lab {
namespace {

using nlohmann::ordered_json;

// Adds the binomial errors, which depend on the size of the test set, and the paired differences to
// summary.json.
void add_errors(ordered_json& summary, const std::vector<OptimizerComparison>& rows, int64_t test_samples,
                const std::vector<PairedDifference>& differences, const std::string& reference) {
  summary["test_samples"] = test_samples;
  for (size_t i = 0; i < rows.size(); ++i) {
    summary["optimizers"][i]["binomial_error"] =
        finite_or_null(binomial_error(rows[i].test_accuracy.mean, test_samples));
  }
  if (!reference.empty()) summary["differences"] = to_json(differences, reference);
}

// Returns the learning rates of each method, read from the configurations of its runs.
std::map<std::string, std::string> read_rates(const std::filesystem::path& folder,
                                              const std::vector<RunSummary>& runs) {
  std::map<std::string, std::string> rates;
  for (const auto& run : runs) {
    read_json(folder / run.identity.run / "config.json", [&](const nlohmann::json& config) {
      const auto lr = config.at("lr").get<double>();
      const double fallback = config.value("fallback_lr", lr);
      rates[run.identity.method()] =
          string_printf("%.3g", lr) + (fallback == lr ? "" : string_printf(", fallback %.3g", fallback));
    });
  }
  return rates;
}

void print_differences(const std::vector<PairedDifference>& differences, const std::string& reference) {
  if (!reference.empty()) print_table(std::cout, difference_table(differences, reference));
}

}  // namespace

void write_results(const CompareResults& results) {
  const auto& [folder, config, test_samples, reference, search, preset, scale, deviations] = results;
  const FolderLock lock(folder, /*wait=*/true);
  const auto runs = recorded_runs(folder);
  for (const auto& run : runs) {
    if (run.diverged) std::cout << run.identity.run << " diverged: " << run.reason << '\n';
  }
  const auto rows = compare(runs);
  auto summary = to_json(rows, runs);
  const auto differences =
      reference.empty() ? std::vector<PairedDifference>() : paired_differences(runs, reference);
  add_errors(summary, rows, test_samples, differences, reference);
  if (!search.is_null()) summary["grid"] = search;
  if (preset == nullptr) {
    write_json(folder / "summary.json", summary);
    print_comparison(std::cout, rows, test_samples);
    print_differences(differences, reference);
    std::cout << "results in " << folder.string() << '\n';
    return;
  }
  const auto table =
      preset_table(*preset, scale, rows, config, read_rates(folder, runs), test_samples, deviations);
  summary["preset"] = preset->name;
  summary["scale"] = scale;
  if (!deviations.empty()) summary["deviations"] = deviations;
  summary["table"] = to_json(table);
  write_json(folder / "summary.json", summary);
  print_table(std::cout, table);
  print_differences(differences, reference);
  draw_figures(folder);
}

}  // namespace tensorion::lab
