#include "lab/training/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lab/text/strings.h"
#include "lab/text/table.h"

namespace tensorion::lab {
namespace {

using nlohmann::ordered_json;

ordered_json to_json(const Statistic& statistic) {
  return {{"mean", statistic.mean}, {"std", statistic.std}};
}

}  // namespace

std::string cell(const Statistic& statistic, int digits, double scale) {
  if (statistic.count == 0) return "-";
  auto text = string_printf("%.*f", digits, scale * statistic.mean);
  if (statistic.count > 1) text += string_printf(" +- %.*f", digits, scale * statistic.std);
  return text;
}

Statistic statistic(const std::vector<double>& values) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const auto count = static_cast<double>(values.size());
  Statistic out{static_cast<int64_t>(values.size()), kNone, kNone};
  if (values.empty()) return out;
  double sum = 0;
  for (const double value : values) sum += value;
  out.mean = sum / count;
  if (values.size() < 2) return out;
  double squares = 0;
  for (const double value : values) squares += (value - out.mean) * (value - out.mean);
  out.std = std::sqrt(squares / (count - 1));
  return out;
}

double binomial_error(double accuracy, int64_t samples) {
  return std::sqrt(accuracy * (1 - accuracy) / static_cast<double>(samples));
}

std::string binomial_cell(const OptimizerComparison& row, int64_t test_samples) {
  if (row.test_accuracy.count == 0) return "-";
  return string_printf("%.2f", 100 * binomial_error(row.test_accuracy.mean, test_samples));
}

std::vector<OptimizerComparison> compare(const std::vector<RunSummary>& runs) {
  std::vector<OptimizerComparison> out;
  for (const auto& first : runs) {
    const auto& name = first.identity.method();
    if (std::any_of(out.begin(), out.end(), [&](const auto& other) { return other.optimizer == name; }))
      continue;
    OptimizerComparison row{.optimizer = name};
    std::vector<const RunSummary*> good;
    for (const auto& run : runs) {
      if (run.identity.method() != name) continue;
      ++row.runs;
      if (run.diverged) {
        ++row.diverged;
      } else {
        good.push_back(&run);
      }
    }
    const auto over = [&](auto value) {
      std::vector<double> values;
      for (const auto* run : good) values.push_back(value(*run));
      return statistic(values);
    };
    row.test_accuracy = over([](const RunSummary& run) { return run.final_epoch()->test_accuracy; });
    row.best_test_accuracy = over([](const RunSummary& run) { return run.best_epoch()->test_accuracy; });
    row.test_loss = over([](const RunSummary& run) { return run.final_epoch()->test_loss; });
    row.train_loss = over([](const RunSummary& run) { return run.final_epoch()->train_loss; });
    row.seconds = over([](const RunSummary& run) { return run.seconds(); });
    row.optimizer_seconds = over([](const RunSummary& run) { return run.optimizer_seconds(); });
    out.push_back(std::move(row));
  }
  return out;
}

ordered_json to_json(const std::vector<OptimizerComparison>& comparison,
                     const std::vector<RunSummary>& runs) {
  auto optimizers = ordered_json::array();
  for (const auto& row : comparison) {
    optimizers.push_back({{"optimizer", row.optimizer},
                          {"runs", row.runs},
                          {"diverged", row.diverged},
                          {"test_accuracy", to_json(row.test_accuracy)},
                          {"best_test_accuracy", to_json(row.best_test_accuracy)},
                          {"test_loss", to_json(row.test_loss)},
                          {"train_loss", to_json(row.train_loss)},
                          {"seconds", to_json(row.seconds)},
                          {"optimizer_seconds", to_json(row.optimizer_seconds)}});
  }
  auto summaries = ordered_json::array();
  for (const auto& run : runs) summaries.push_back(to_json(run));
  return {{"optimizers", std::move(optimizers)}, {"runs", std::move(summaries)}};
}

void print_comparison(std::ostream& out, const std::vector<OptimizerComparison>& comparison,
                      int64_t test_samples) {
  std::vector<TableRow> rows{{"optimizer", "runs", "accuracy %", "binomial", "best %", "test loss",
                              "train loss", "seconds", "in optimizer", ""}};
  for (const auto& row : comparison) {
    rows.push_back({row.optimizer, std::to_string(row.runs), cell(row.test_accuracy, 2, 100),
                    binomial_cell(row, test_samples), cell(row.best_test_accuracy, 2, 100),
                    cell(row.test_loss, 4), cell(row.train_loss, 4), cell(row.seconds, 1),
                    cell(row.optimizer_seconds, 1),
                    row.diverged > 0 ? std::to_string(row.diverged) + " diverged" : ""});
  }
  print_rows(out, rows, "lrrrrrrrrl");
  out << "(+-: standard deviation over the seeds; binomial: standard error of the accuracy on "
      << test_samples << " test samples)\n";
}

}  // namespace tensorion::lab
