// Differences between methods and a reference method, paired by seed. Runs with the same seed share their
// initial weights and the order of the data, so the variation from these cancels in the difference.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/text/result_table.h"
#include "lab/training/metrics.h"

namespace tensorion::lab {

// The test accuracy of the method minus the test accuracy of the reference after the last epoch, as a
// fraction.
struct PairedDifference {
  std::string method;
  int64_t pairs = 0;  // number of seeds for which neither run diverged
  double mean = 0;    // NaN if there are no pairs
  // The 95 % confidence interval of the mean from Student's t distribution. NaN if there are fewer than two
  // pairs.
  double low = 0;
  double high = 0;
};

// Returns one difference for each method other than the reference, in the order in which the methods first
// occur.
std::vector<PairedDifference> paired_differences(const std::vector<RunSummary>& runs,
                                                 const std::string& reference);

// Returns the 97.5 % quantile of Student's t distribution with `degrees` >= 1 degrees of freedom.
double t_quantile(int64_t degrees);

ResultTable difference_table(const std::vector<PairedDifference>& differences, const std::string& reference);
nlohmann::ordered_json to_json(const std::vector<PairedDifference>& differences,
                               const std::string& reference);

}  // namespace tensorion::lab
