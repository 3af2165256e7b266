// Several optimizers side by side, each over several seeds.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/training/metrics.h"

namespace tensorion::lab {

struct Statistic {
  int64_t count = 0;
  double mean = 0;  // NaN if there are no values
  double std = 0;   // with count - 1 in the denominator; NaN if there are fewer than two values
};
Statistic statistic(const std::vector<double>& values);
// "85.12 +- 0.30", the mean alone for a single value, or "-" for none.
std::string cell(const Statistic& statistic, int digits, double scale = 1);

// The standard deviation of an accuracy measured on so many samples, sqrt(p (1 - p) / n): what another test
// set of this size would change, which seeds do not show.
double binomial_error(double accuracy, int64_t samples);

// The runs of one method: those with the same label, or without one, with the same optimizer.
struct OptimizerComparison {
  std::string optimizer;
  int64_t runs = 0;
  int64_t diverged = 0;
  // Over the runs that did not diverge, of their last epochs unless said otherwise.
  Statistic test_accuracy = {};
  Statistic best_test_accuracy = {};
  Statistic test_loss = {};
  Statistic train_loss = {};
  Statistic seconds = {};            // of the whole run
  Statistic optimizer_seconds = {};  // as well
};

// "0.31", in percentage points, or "-" if every run diverged.
std::string binomial_cell(const OptimizerComparison& row, int64_t test_samples);

// In the order in which the optimizers first occur.
std::vector<OptimizerComparison> compare(const std::vector<RunSummary>& runs);

// {"optimizers": [one for each], "runs": [their summaries]}.
nlohmann::ordered_json to_json(const std::vector<OptimizerComparison>& comparison,
                               const std::vector<RunSummary>& runs);

// An aligned table, a line for each optimizer, with the binomial error of `test_samples`.
void print_comparison(std::ostream& out, const std::vector<OptimizerComparison>& comparison,
                      int64_t test_samples);

}  // namespace tensorion::lab
