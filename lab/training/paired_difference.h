// Differences of methods from a reference method, paired by seed: runs of one seed share their weights to
// start from and the order of the data, which cancels in the difference.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/text/result_table.h"
#include "lab/training/metrics.h"

namespace tensorion::lab {

// Of the test accuracy of the last epoch, a fraction: the method's minus the reference's.
struct PairedDifference {
  std::string method;
  int64_t pairs = 0;  // seeds of which neither run diverged
  double mean = 0;    // NaN without pairs
  // The 95 % confidence interval of the mean by Student's t distribution; NaN for fewer than two pairs.
  double low = 0;
  double high = 0;
};

// For each method other than the reference, in the order in which they first occur.
std::vector<PairedDifference> paired_differences(const std::vector<RunSummary>& runs,
                                                 const std::string& reference);

// The 97.5 % quantile of Student's t distribution with `degrees` >= 1 degrees of freedom.
double t_quantile(int64_t degrees);

ResultTable difference_table(const std::vector<PairedDifference>& differences, const std::string& reference);
nlohmann::ordered_json to_json(const std::vector<PairedDifference>& differences,
                               const std::string& reference);

}  // namespace tensorion::lab
