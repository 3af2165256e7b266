#include "tensorion/polar/log_det_bounds.h"

#include <algorithm>
#include <span>

#include "tensorion/polar/nuclear_norm_estimator.h"
#include "tensorion/polar/rational_filter_tables.h"
#include "tests/support.h"

namespace tensorion {
namespace {

using namespace rational_filter_tables;
using testing::gaussian;
using testing::power_law;
using testing::rounding;
using testing::with_spectrum;

constexpr int kLevels = std::size(kLogDetLevels);

class LogDetTables : public ::testing::TestWithParam<LogDetLevel> {};
INSTANTIATE_TEST_SUITE_P(LogDetBounds, LogDetTables, ::testing::ValuesIn(kLogDetLevels),
                         [](const auto& info) { return c10::str("Shifts", info.param.shifts); });

TEST_P(LogDetTables, CertificatesBoundTheSquareRoot) {
  const auto& level = GetParam();
  const auto shifts = std::span<const double>(kShifts).first(level.shifts);
  const double smallest = *std::min_element(shifts.begin(), shifts.end());
  const auto weight = [](const LogDetCertificate& certificate) {
    double sum = 0;
    for (const auto& shift : certificate.bound.shifts) sum += std::abs(shift.log_det);
    return sum;
  };
  for (size_t k = 0; k < level.upper.size(); ++k) {
    const auto &upper = level.upper[k], &lower = level.lower[k], &inverse = level.inverse[k];
    EXPECT_NEAR(upper.weight, weight(upper), 1e-12);
    EXPECT_NEAR(lower.weight, weight(lower), 1e-12);
    EXPECT_NEAR(inverse.weight, weight(inverse), 1e-9);
    for (double s = 1e-13; s <= 1; s *= 1.00017) {
      SpectrumMoments moments{1, s, s * s, {}};
      for (const double c : shifts) moments.shifts.push_back({.log_det = std::log1p(s / c)});
      ASSERT_GE(upper.bound.evaluate(moments), std::sqrt(s) - 1e-9) << k << " " << s;
      ASSERT_LE(lower.bound.evaluate(moments), std::sqrt(s) + 1e-9) << k << " " << s;
      ASSERT_GE(inverse.bound.evaluate(moments), smallest / (s + smallest) - 1e-9) << k << " " << s;
      for (const auto* certificate : {&upper, &lower}) {
        const auto& bound = certificate->bound;
        double slope = std::abs(bound.linear + 2 * bound.quadratic * s);
        for (size_t j = 0; j < shifts.size(); ++j) {
          slope += std::abs(bound.shifts[j].log_det) / (s + shifts[j]);
        }
        ASSERT_LE(slope, certificate->slope / (2 * std::sqrt(s + smallest))) << k << " " << s;
      }
    }
  }
}

TEST(LogDetBounds, BoundsHoldAndAreTight) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const double exponent : {0.0, 0.5, 1.0}) {
      SCOPED_TRACE(c10::str(dtype, ", exponent ", exponent));
      const auto spectrum = power_law(150, exponent) * 3;
      const double truth = spectrum.sum().item<double>();
      NuclearNormEstimator estimate(with_spectrum(spectrum, 150, 200, 1, dtype));
      for (const double width : {0.1, 0.05, 1e-3, 7e-4}) {
        ASSERT_TRUE(estimate.refine());
        for (const auto& bounds : {estimate.bounds(), estimate.heuristic_bounds()}) {
          EXPECT_LE(bounds.lower, truth);
          EXPECT_GE(bounds.upper, truth);
          EXPECT_LE(bounds.upper - bounds.lower, width * truth);
        }
      }
    }
  }
}

// Returns matrices whose sums accumulate rounding errors of one sign, and matrices whose small singular
// values come from rounding only.
at::Tensor structured(int kind, int64_t m, int64_t n, double noise, uint64_t seed) {
  const auto g = gaussian({m, n}, seed);
  const auto i = at::arange(m, at::kFloat).unsqueeze(1), j = at::arange(n, at::kFloat).unsqueeze(0);
  const auto low_rank = [&](int64_t rank) {
    return at::mm(gaussian({m, rank}, seed + 1), gaussian({rank, n}, seed + 2));
  };
  switch (kind) {
    case 0: return 1 + noise * g;
    case 1: return at::exp(-(i / m - j / n).square() * 9) + 1e-3 * noise * g;
    case 2: return 1 / (i + j + 1);
    case 3: return low_rank(m / 4);
    case 4: return low_rank(m / 4) + 0.01 * noise * g;
    case 5: return g.round() * 0.1;
    case 6: return at::ones({m, n}).tril() * 0.1;
    case 7: return at::eye(m, n) * 0.3 + 0.001;
    case 8: return at::sign(g) * 0.7;
    case 9: return at::sin(i * j * noise) + 1e-4 * g;
    case 10: return g * at::pow(i + 1, -1.5);
    default: return low_rank(1) + noise * noise * g;
  }
}

// Returns a tolerance for a nuclear norm that is computed as the sum of the square roots of m eigenvalues in
// double precision. The square root of an eigenvalue 0 can be as large as sqrt(epsilon), relative to the
// largest.
double eigenvalue_tolerance(const at::Tensor& a) {
  const double norm = at::linalg_svdvals(a.to(at::kDouble)).max().item<double>();
  return static_cast<double>(std::min(a.size(0), a.size(1))) * std::sqrt(testing::epsilon(at::kDouble)) *
         norm;
}

TEST(LogDetBounds, BoundsHoldForStructuredData) {
  int refined = 0;
  for (int kind = 0; kind < 12; ++kind) {
    for (const int64_t m : {24, 100, 220}) {
      for (const double noise : {1e-1, 1e-3, 1e-5}) {
        const auto a = structured(kind, m, m + m / 2 * (kind % 2), noise, m).contiguous();
        const double truth = at::linalg_svdvals(a.to(at::kDouble)).sum().item<double>();
        NuclearNormEstimator estimate(a);
        EXPECT_GE(estimate.bounds().upper, truth);
        for (int level = 1; estimate.refine(); ++level) {
          const auto what = c10::str("kind ", kind, ", ", m, ", ", noise, ", level ", level);
          EXPECT_LE(estimate.bounds().lower, truth) << what;
          EXPECT_GE(estimate.bounds().upper, truth) << what;
          EXPECT_LE(estimate.heuristic_bounds().lower, truth + eigenvalue_tolerance(a)) << what;
          EXPECT_GE(estimate.heuristic_bounds().upper, truth - eigenvalue_tolerance(a)) << what;
          ++refined;
        }
      }
    }
  }
  EXPECT_GT(refined, 2 * 12 * 9);
}

// If a factorization fails, or after the last level, the bounds come from eigenvalues.
TEST(LogDetBounds, LastRefinementUsesEigenvalues) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    SCOPED_TRACE(dtype);
    const auto a = with_spectrum(power_law(300, 1), 300, 320, 2, dtype);
    const double truth = at::linalg_svdvals(a.to(at::kDouble)).sum().item<double>();
    NuclearNormEstimator estimate(a);
    for (int level = 0; level <= kLevels; ++level) {
      EXPECT_EQ(estimate.refinements(), level);
      EXPECT_TRUE(estimate.refine());
    }
    EXPECT_FALSE(estimate.refine());
    // The estimator allows for four epsilons in each eigenvalue.
    const double tolerance = 4 * rounding(at::kDouble, 320) * testing::condition_number(a) * truth;
    EXPECT_NEAR(estimate.heuristic_bounds().lower, truth, tolerance);
    EXPECT_NEAR(estimate.heuristic_bounds().upper, truth, tolerance);
    EXPECT_LE(estimate.bounds().upper - estimate.bounds().lower, 1e-4 * truth);
    const auto factor = std::move(estimate).factor();
    EXPECT_GE(factor.value, 0.97 * truth);
    EXPECT_LE(factor.value, truth);
  }
  const auto deficient = structured(1, 400, 400, 0, 1);
  NuclearNormEstimator estimate(deficient);
  bool failed = false;
  while (estimate.can_refine()) {
    const bool needs_eigenvalues = estimate.needs_eigenvalues();
    const auto before = estimate.bounds();
    estimate.refine();
    const auto after = estimate.bounds();
    failed = failed || (!needs_eigenvalues && before.lower == after.lower && before.upper == after.upper);
  }
  EXPECT_TRUE(failed);
  const double truth = at::linalg_svdvals(deficient.to(at::kDouble)).sum().item<double>();
  EXPECT_NEAR(estimate.heuristic_bounds().upper, truth, 4 * eigenvalue_tolerance(deficient));
}

// The polar factor does not depend on whether the bounds were refined before.
TEST(LogDetBounds, PolarFactorAfterRefinements) {
  const auto a = with_spectrum(power_law(160, 1), 160, 200, 5);
  const auto fresh = NuclearNormEstimator(a).factor();
  NuclearNormEstimator estimate(a);
  for (int level = 0; level < 3; ++level) estimate.refine();
  const auto again = std::move(estimate).factor();
  EXPECT_NEAR(again.value, fresh.value, 0.01 * fresh.value);
  EXPECT_GE((a * again.x).sum(at::kDouble).item<double>(), again.value);
  EXPECT_LE(at::linalg_svdvals(again.x.to(at::kDouble)).max().item<double>(), 1 + 1e-5);
}

}  // namespace
}  // namespace tensorion
