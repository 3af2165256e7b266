#include "lab/training/paired_difference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>

#include "lab/io/json_file.h"
#include "lab/text/strings.h"
#include "lab/training/comparison.h"

namespace tensorion::lab {
namespace {

constexpr double kConfidence = 0.95;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Returns P(|T| <= t) for t = sqrt(degrees) tan(theta). See M. Abramowitz and I. Stegun, 26.7.3 and 26.7.4.
double central_probability(double theta, int64_t degrees) {
  const double sine = std::sin(theta), cosine = std::cos(theta), square = cosine * cosine;
  const bool is_odd = degrees % 2 == 1;
  double term = is_odd ? cosine : 1, sum = degrees == 1 ? 0 : term;
  for (int64_t i = is_odd ? 3 : 2; i < degrees; i += 2) {
    term *= square * static_cast<double>(i - 1) / static_cast<double>(i);
    sum += term;
  }
  return is_odd ? 2 / std::numbers::pi * (theta + sine * sum) : sine * sum;
}

PairedDifference difference(const std::vector<RunSummary>& runs, const std::string& method,
                            const std::string& reference) {
  std::vector<double> values;
  for (const auto& run : runs) {
    if (run.identity.method() != method || run.diverged) continue;
    for (const auto& other : runs) {
      if (other.identity.method() == reference && other.identity.seed == run.identity.seed && !other.diverged)
        values.push_back(run.final_epoch()->test_accuracy - other.final_epoch()->test_accuracy);
    }
  }
  const auto found = statistic(values);
  PairedDifference out{
      .method = method, .pairs = found.count, .mean = found.mean, .low = kNone, .high = kNone};
  if (found.count < 2) return out;
  const double half = t_quantile(found.count - 1) * found.std / std::sqrt(static_cast<double>(found.count));
  out.low = out.mean - half;
  out.high = out.mean + half;
  return out;
}

}  // namespace

double t_quantile(int64_t degrees) {
  double low = 0, high = std::numbers::pi / 2;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (central_probability(middle, degrees) < kConfidence ? low : high) = middle;
  }
  return std::sqrt(static_cast<double>(degrees)) * std::tan((low + high) / 2);
}

std::vector<PairedDifference> paired_differences(const std::vector<RunSummary>& runs,
                                                 const std::string& reference) {
  std::vector<PairedDifference> out;
  for (const auto& run : runs) {
    const auto& method = run.identity.method();
    const bool is_known = std::any_of(out.begin(), out.end(),
                                      [&](const PairedDifference& other) { return other.method == method; });
    if (!is_known && method != reference) out.push_back(difference(runs, method, reference));
  }
  return out;
}

ResultTable difference_table(const std::vector<PairedDifference>& differences, const std::string& reference) {
  ResultTable table{.title = "Difference of the test accuracy from " + reference + ", in percentage points",
                    .header = {"method", "pairs", "difference", "95 % interval", ""},
                    .rows = {},
                    .alignment = "lrrrl",
                    .notes = {"(paired by seed; confidence intervals from the t distribution)"}};
  for (const auto& each : differences) {
    const bool has_interval = each.pairs > 1;
    const bool is_apart = each.low > 0 || each.high < 0;
    table.rows.push_back(
        {each.method, std::to_string(each.pairs),
         each.pairs > 0 ? string_printf("%+.2f", 100 * each.mean) : "-",
         has_interval ? string_printf("[%+.2f, %+.2f]", 100 * each.low, 100 * each.high) : "-",
         !has_interval ? "needs two seeds"
         : is_apart    ? ""
                       : "not significant"});
  }
  return table;
}

nlohmann::ordered_json to_json(const std::vector<PairedDifference>& differences,
                               const std::string& reference) {
  auto methods = nlohmann::ordered_json::array();
  for (const auto& each : differences) {
    methods.push_back({{"method", each.method},
                       {"pairs", each.pairs},
                       {"mean", finite_or_null(each.mean)},
                       {"low", finite_or_null(each.low)},
                       {"high", finite_or_null(each.high)}});
  }
  return {{"reference", reference},
          {"quantity", "test_accuracy"},
          {"confidence", kConfidence},
          {"methods", std::move(methods)}};
}

}  // namespace tensorion::lab
