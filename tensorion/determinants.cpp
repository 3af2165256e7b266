#include "tensorion/determinants.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <span>

#include "tensorion/parallel.h"
#include "tensorion/precision.h"
#include "tensorion/rows.h"
#include "tensorion/symmetric.h"
#include "tensorion/zolotarev_tables.h"

namespace tensorion {
namespace {

constexpr size_t kLevels[] = {3, 7, 9, 11};
constexpr size_t kPolynomials = 3;  // 1, s and s^2

// `inverse` bounds the trace of c / (s + c) for the smallest shift. A row ends with its sensitivity to
// rounding: of `upper` and `lower` that of the slope, of all that of the determinants.
struct Level {
  Rows upper;
  Rows lower;
  Rows inverse;
};

Level level(size_t shifts) {
  namespace tables = zolotarev;
  switch (shifts) {
    case 3:
      return {tables::kThreeDeterminantsUpper, tables::kThreeDeterminantsLower,
              tables::kThreeDeterminantsInverse};
    case 7:
      return {tables::kSevenDeterminantsUpper, tables::kSevenDeterminantsLower,
              tables::kSevenDeterminantsInverse};
    case 9:
      return {tables::kNineDeterminantsUpper, tables::kNineDeterminantsLower,
              tables::kNineDeterminantsInverse};
    default:
      return {tables::kElevenDeterminantsUpper, tables::kElevenDeterminantsLower,
              tables::kElevenDeterminantsInverse};
  }
}

double smallest_shift(size_t shifts) {
  return *std::min_element(zolotarev::kShifts, zolotarev::kShifts + shifts);
}

}  // namespace

Determinants::Determinants(const GramMatrix& gram, double trace_error)
    : epsilon_(machine_epsilon(gram.matrix.scalar_type())),
      moments_{static_cast<double>(gram.matrix.size(0)), gram.trace / gram.lambda,
               gram.squares / (gram.lambda * gram.lambda)},
      bounds_{0, gram.nuclear_upper},
      likely_(bounds_) {
  likely_share_ = std::min(1.0, (1 + 2 * trace_error / gram.rounding) / std::sqrt(moments_[0]));
}

size_t Determinants::done() const { return moments_.size() - kPolynomials; }

double Determinants::likely_error(const GramMatrix& gram) const {
  return likely_share_ * gram.rounding / std::sqrt(moments_[0]);
}

bool Determinants::exhausted(const GramMatrix& gram) const {
  const auto* const goal = std::upper_bound(std::begin(kLevels), std::end(kLevels), done());
  if (failed_ || goal == std::end(kLevels)) return true;
  return !gram.inverse_growth(smallest_shift(*goal), likely_error(gram), least_);
}

bool Determinants::refine(GramMatrix& gram, bool keep_factors) {
  TORCH_INTERNAL_ASSERT(!exhausted(gram));
  const size_t done = this->done();
  const auto* const goal = std::upper_bound(std::begin(kLevels), std::end(kLevels), done);
  const std::span<const double> shifts(zolotarev::kShifts);
  const std::span<const double> poles(zolotarev::kPoles);
  const auto wanted = shifts.subspan(done, *goal - done);
  const auto count = static_cast<int64_t>(wanted.size());
  std::vector<std::optional<ShiftedFactor>> found(count);
  const auto factor = [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      found[k] = gram.factor(wanted[k]);
      const bool is_pole = std::find(poles.begin(), poles.end(), wanted[k]) != poles.end();
      if (found[k] && !(keep_factors && is_pole)) found[k]->lower.reset();
    }
  };
  // An odd one is left to all threads.
  const int64_t paired = side_by_side(gram.matrix) ? count / 2 * 2 : 0;
  parallel_calls(0, paired, 1, factor);
  factor(paired, count);
  for (int64_t k = 0; k < count; ++k) {
    const auto& one = found[k];
    if (!one) {
      failed_ = true;
      return false;
    }
    moments_.push_back(one->log_det);
    if (one->lower.defined()) gram.factors.insert({wanted[k], *one});
  }
  certify(gram);
  return true;
}

void Determinants::certify(const GramMatrix& gram) {
  const auto known = level(done());
  const double m = moments_[0], root = std::sqrt(gram.lambda);
  TORCH_INTERNAL_ASSERT(known.inverse.width == moments_.size() + 1);
  const auto combined = [&](std::span<const double> row) {
    return std::inner_product(moments_.begin(), moments_.end(), row.begin(), 0.0);
  };
  const double smallest = smallest_shift(done());
  double inverse = m;
  for (size_t i = 0; i < known.inverse.count(); ++i) {
    const auto row = known.inverse[i];
    inverse = std::min(inverse, combined(row) + row.back() * epsilon_ * m);
  }
  inverse = std::max(inverse, m * smallest / (1 + smallest));  // no s is above 1
  least_ = std::max(least_, smallest / inverse - smallest);    // no term of the trace exceeds it
  // Narrows bounds by all that errors of these norms allow.
  const auto narrow = [&](NuclearBounds& bounds, double frobenius, double spectral) {
    const auto growth = gram.inverse_growth(smallest, spectral, least_);
    if (!growth) return;
    // || 1 / (2 sqrt(S + c I)) ||_F times what rounding adds to S; the inverse is that of the computed
    // matrix.
    const double slope = std::sqrt(*growth * inverse / smallest) / 2 * frobenius / gram.lambda;
    const auto moved = [&](std::span<const double> row) {
      return row[row.size() - 2] * slope + row.back() * epsilon_ * m * frobenius / gram.rounding;
    };
    for (size_t i = 0; i < known.upper.count(); ++i) {
      const auto below = known.lower[i], above = known.upper[i];
      bounds.lower = std::max(bounds.lower, root * (combined(below) - moved(below)));
      bounds.upper = std::min(bounds.upper, root * (combined(above) + moved(above)));
    }
    // Where bounds of several kinds nearly meet, rounding must not let them pass each other.
    bounds.upper = std::max(bounds.lower, bounds.upper);
  };
  narrow(bounds_, gram.rounding, gram.spectral_rounding);
  narrow(likely_, likely_share_ * gram.rounding, likely_error(gram));
}

}  // namespace tensorion
