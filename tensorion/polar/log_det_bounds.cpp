#include "tensorion/polar/log_det_bounds.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include "tensorion/core/parallel.h"
#include "tensorion/core/precision.h"
#include "tensorion/polar/rational_filter_tables.h"
#include "tensorion/polar/symmetric.h"

namespace tensorion {
namespace {

namespace tables = rational_filter_tables;
using tables::LogDetCertificate;
using tables::LogDetLevel;

// Returns the level with this number of shifts or, if `next` is true, the first level with more shifts.
// Returns null if there is none.
const LogDetLevel* find_level(size_t shifts, bool next) {
  const auto* const level =
      std::find_if(std::begin(tables::kLogDetLevels), std::end(tables::kLogDetLevels),
                   [&](const auto& level) { return next ? level.shifts > shifts : level.shifts == shifts; });
  return level == std::end(tables::kLogDetLevels) ? nullptr : level;
}

double smallest_shift(size_t shifts) { return *std::min_element(tables::kShifts, tables::kShifts + shifts); }

}  // namespace

LogDetBounds::LogDetBounds(const GramMatrix& gram, double trace_error)
    : epsilon_(machine_epsilon(gram.matrix.scalar_type())),
      moments_(gram.moments()),
      bounds_{0, gram.nuclear_upper},
      heuristic_bounds_(bounds_) {
  heuristic_ratio_ = std::min(1.0, (1 + 2 * trace_error / gram.rounding) / std::sqrt(moments_.count));
}

double LogDetBounds::heuristic_error(const GramMatrix& gram) const {
  return heuristic_ratio_ * gram.rounding / std::sqrt(moments_.count);
}

bool LogDetBounds::exhausted(const GramMatrix& gram) const {
  const auto* const next = find_level(moments_.shifts.size(), /*next=*/true);
  if (failed_ || !next) return true;
  return !gram.inverse_growth(smallest_shift(next->shifts), heuristic_error(gram), min_eigenvalue_);
}

bool LogDetBounds::refine(const GramMatrix& gram) {
  TORCH_INTERNAL_ASSERT(!exhausted(gram));
  const size_t first = moments_.shifts.size();
  const size_t target = find_level(first, /*next=*/true)->shifts;
  const auto new_shifts = std::span(tables::kShifts).subspan(first, target - first);
  const auto count = static_cast<int64_t>(new_shifts.size());
  std::vector<std::optional<double>> log_dets(count);
  const auto compute = [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) log_dets[k] = gram.log_det(new_shifts[k]);
  };
  // If the number of determinants is odd, the last one is computed on all threads.
  const int64_t paired = use_paired_threads(gram.matrix) ? count / 2 * 2 : 0;
  parallel_for_with_tls(0, paired, 1, compute);
  compute(paired, count);
  for (const auto& log_det : log_dets) {
    if (!log_det) {
      failed_ = true;
      moments_.shifts.resize(first);
      return false;
    }
    moments_.shifts.push_back({.log_det = *log_det});
  }
  update_bounds(gram);
  return true;
}

void LogDetBounds::update_bounds(const GramMatrix& gram) {
  const auto& level = *find_level(moments_.shifts.size(), /*next=*/false);
  const double m = moments_.count, root = std::sqrt(gram.lambda);
  const double smallest = smallest_shift(level.shifts);
  double inverse = m;  // upper bound of the trace of c / (s + c)
  for (const auto& certificate : level.inverse) {
    inverse = std::min(inverse, certificate.bound.evaluate(moments_) + certificate.weight * epsilon_ * m);
  }
  inverse = std::max(inverse, m * smallest / (1 + smallest));  // because every s is at most 1
  // Every term c / (s + c) of the trace is at most the trace.
  min_eigenvalue_ = std::max(min_eigenvalue_, smallest / inverse - smallest);
  // Tightens the bounds, with an allowance for errors E of these norms.
  const auto narrow = [&](NuclearBounds& bounds, double frobenius, double spectral) {
    const auto growth = gram.inverse_growth(smallest, spectral, min_eigenvalue_);
    if (!growth) return;
    // This is ||(S + c I)^(-1/2) / 2||_F ||E||_F / lambda. `inverse` is a bound for the computed matrix, and
    // `growth` turns it into a bound for the exact one.
    const double slope = std::sqrt(*growth * inverse / smallest) / 2 * frobenius / gram.lambda;
    const auto rounding_error = [&](const LogDetCertificate& certificate) {
      return certificate.slope * slope + certificate.weight * epsilon_ * m * frobenius / gram.rounding;
    };
    for (size_t i = 0; i < level.upper.size(); ++i) {
      const auto &below = level.lower[i], &above = level.upper[i];
      bounds.lower = std::max(bounds.lower, root * (below.bound.evaluate(moments_) - rounding_error(below)));
      bounds.upper = std::min(bounds.upper, root * (above.bound.evaluate(moments_) + rounding_error(above)));
    }
    // Rounding must not make the lower bound exceed the upper one.
    bounds.upper = std::max(bounds.lower, bounds.upper);
  };
  narrow(bounds_, gram.rounding, gram.spectral_rounding);
  narrow(heuristic_bounds_, heuristic_ratio_ * gram.rounding, heuristic_error(gram));
}

}  // namespace tensorion
