// Compares several optimizers, each over several seeds.
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
// Returns a text such as "85.12 +- 0.30". For a single value it is the mean alone, and without values it is
// "-".
std::string cell(const Statistic& statistic, int digits, double scale = 1);

// The standard deviation of an accuracy that is measured on this number of samples, sqrt(p (1 - p) / n). It
// estimates how much the accuracy varies between test sets of this size, which the deviation over seeds does
// not include.
double binomial_error(double accuracy, int64_t samples);

// The runs of one method. Runs belong to the same method if they have the same label or, without a label, the
// same optimizer.
struct OptimizerComparison {
  std::string optimizer;
  int64_t runs = 0;
  int64_t diverged = 0;
  // Statistics over the runs that did not diverge. Unless noted otherwise, values are from the last epoch.
  Statistic test_accuracy = {};
  Statistic best_test_accuracy = {};
  Statistic test_loss = {};
  Statistic train_loss = {};
  Statistic seconds = {};            // over the whole run
  Statistic optimizer_seconds = {};  // over the whole run
};

// Returns the error in percentage points, such as "0.31", or "-" if every run diverged.
std::string binomial_cell(const OptimizerComparison& row, int64_t test_samples);

// Returns the optimizers in the order in which they first occur.
std::vector<OptimizerComparison> compare(const std::vector<RunSummary>& runs);

// Returns {"optimizers": [one entry for each], "runs": [their summaries]}.
nlohmann::ordered_json to_json(const std::vector<OptimizerComparison>& comparison,
                               const std::vector<RunSummary>& runs);

// Prints an aligned table with one line for each optimizer, including the binomial error for `test_samples`.
void print_comparison(std::ostream& out, const std::vector<OptimizerComparison>& comparison,
                      int64_t test_samples);

}  // namespace tensorion::lab
