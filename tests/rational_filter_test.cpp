#include "tensorion/polar/rational_filter.h"

#include <algorithm>
#include <span>
#include <vector>

#include "tensorion/core/gemm.h"
#include "tensorion/polar/rational_filter_tables.h"
#include "tests/support.h"

namespace tensorion {
namespace {

using namespace rational_filter_tables;
using testing::gaussian;
using testing::power_law;
using testing::with_spectrum;

// Returns the moments of a spectrum with a single eigenvalue s.
SpectrumMoments moments_at(double s, std::span<const double> shifts) {
  SpectrumMoments moments{1, s, s * s, {}};
  for (const double c : shifts) {
    const double u = c / (s + c);
    moments.shifts.push_back({u, u * u, std::log1p(s / c)});
  }
  return moments;
}

double filter(double x, double alpha, double gamma, std::span<const double> beta,
              std::span<const double> poles) {
  double q = alpha + gamma * x * x;
  for (size_t j = 0; j < poles.size(); ++j) q += beta[j] / (x * x + poles[j]);
  return x * q;
}

// The parameter is the number of poles.
class FilterTables : public ::testing::TestWithParam<size_t> {
 protected:
  std::span<const double> poles() const { return std::span<const double>(kPoles).first(GetParam()); }
  const FilterLevel& level() const { return kFilterLevels[GetParam() - 2]; }
};
INSTANTIATE_TEST_SUITE_P(RationalFilter, FilterTables, ::testing::Values(2, 3, 4, 5));

TEST_P(FilterTables, FiltersStayBetweenPassbandMinAndOne) {
  double best = 0;
  for (const auto& weights : level().filters) {
    for (double x = 1e-6; x <= 1; x *= 1.0003) {
      const double f = filter(x, weights.alpha, weights.gamma, weights.beta, poles());
      ASSERT_LE(f, 1 + 1e-9) << x;
      ASSERT_GE(f, -1e-5) << x;
      // The certificate of later iterations depends on this bound.
      ASSERT_GE(f, (weights.passband_min - 1e-9) * std::min(1.0, x / level().cutoff)) << x;
    }
    best = std::max(best, weights.passband_min);
  }
  EXPECT_GT(best, 0.9);
}

TEST_P(FilterTables, CertificatesBoundTheSquareRoot) {
  for (double s = 1e-13; s <= 1; s *= 1.00017) {
    const auto moments = moments_at(s, poles());
    for (size_t k = 0; k < level().upper.size(); ++k) {
      ASSERT_GE(level().upper[k].bound.evaluate(moments), std::sqrt(s) - 1e-9) << k << " " << s;
      ASSERT_LE(level().lower[k].bound.evaluate(moments), std::sqrt(s) + 1e-9) << k << " " << s;
    }
  }
}

// Compares with the derivatives of the certificates, computed by finite differences.
TEST_P(FilterTables, SensitivitiesBoundTheDerivatives) {
  const double smallest = *std::min_element(poles().begin(), poles().end());
  auto certificates = std::vector<FilterCertificate>(level().upper.begin(), level().upper.end());
  certificates.insert(certificates.end(), level().lower.begin(), level().lower.end());
  for (const auto& [certificate, limits] : certificates) {
    const auto bound = [&](double s) { return certificate.evaluate(moments_at(s, poles())); };
    const double first = (bound(1e-3 * smallest) - bound(0)) / (1e-3 * smallest);
    ASSERT_LE(std::abs(first), limits.at_zero + 0.002 * limits.tail);
    for (double s = smallest / 10; s <= 1; s *= 1.01) {
      const double slope = (bound(s * 1.001) - bound(s * 0.999)) / (0.002 * s);
      const double u = smallest / (s + smallest);
      ASSERT_LE(slope * slope, (limits.inverse * u + limits.inverse_squared * u * u) * (1 + 1e-4)) << s;
      ASSERT_LE(std::abs(slope - first), limits.tail * (1 - u) * 1.01 + 0.01 * std::abs(first)) << s;
    }
  }
}

// Zolotarev's function is characterized by equioscillation: it alternates between its minimum and 1 as often
// as possible.
TEST(RationalFilter, FineFilterEquioscillates) {
  int extremes = 0;
  double last = -1;
  for (double x = kFineCutoff; x <= 1; x *= 1.00003) {
    const double f = filter(x, kFineAlpha, 0, kFineBeta, kFinePoles);
    ASSERT_LE(f, 1 + 1e-9) << x;
    ASSERT_GE(f, kFinePassbandMin - 1e-9) << x;
    for (const double extreme : {kFinePassbandMin, 1.0}) {
      if (std::abs(f - extreme) < 1e-6 && extreme != last) {
        ++extremes;
        last = extreme;
      }
    }
  }
  EXPECT_GE(extremes, 2 * static_cast<int>(std::size(kFinePoles)) + 1);
}

// Regression: rounding errors of sums of nearly equal terms have the same sign and grow with the number of
// terms. Upper bounds were below the norm by 6e-4, and values were above it by 1e-5.
TEST(RationalFilter, BoundsHoldForNearlyConstantMatricesInSinglePrecision) {
  for (const int64_t n : {9, 144, 576, 1152}) {
    const int64_t m = std::min<int64_t>(n, 64);
    for (const double noise : {0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2}) {
      for (const double level : {1.1, 0.7, 1.9}) {
        const auto a = (level + noise * gaussian({m, n}, n, at::kDouble)).to(at::kFloat);
        const auto what = c10::str(m, " x ", n, ", ", level, " + ", noise);
        const double truth = at::linalg_svdvals(a.to(at::kDouble)).sum().item<double>();
        GramMatrix gram(a);
        EXPECT_GE(gram.nuclear_upper, truth) << what;
        auto filter = RationalFilter::solve(gram);
        ASSERT_TRUE(filter.has_value()) << what;
        for (bool refined = true; refined; refined = filter->refine(gram)) {
          EXPECT_LE(filter->value(), truth) << what;
          EXPECT_LE(filter->nuclear_norm().lower, truth) << what;
          EXPECT_GE(filter->nuclear_norm().upper, truth) << what;
        }
        const double rounding = filter->value_rounding();
        const double value = (a * gemm(std::move(*filter).matrix(), a)).sum(at::kDouble).item<double>();
        EXPECT_LE(value - rounding, truth) << what;
      }
    }
  }
}

TEST(RationalFilter, NuclearNormBoundsAreTight) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const double exponent : {0.0, 0.5, 1.0}) {
      SCOPED_TRACE(c10::str(dtype, ", exponent ", exponent));
      const auto spectrum = power_law(150, exponent) * 3;
      const double truth = spectrum.sum().item<double>();
      GramMatrix gram(with_spectrum(spectrum, 150, 200, 1, dtype));
      auto filter = RationalFilter::solve(gram);
      ASSERT_TRUE(filter.has_value());
      for (const double width : {0.08, 0.02, 0.005, 0.002}) {
        EXPECT_LE(filter->nuclear_norm().lower, truth);
        EXPECT_GE(filter->nuclear_norm().upper, truth);
        EXPECT_LE(filter->nuclear_norm().upper - filter->nuclear_norm().lower, width * truth);
        EXPECT_EQ(filter->refine(gram), width > 0.002);
      }
    }
  }
}

// The allowance for rounding grows with the size of the matrix and with the decay of its spectrum. It also
// depends on the order in which the library that computes products adds the terms: blocks, or one by one.
TEST(RationalFilter, RefinedBoundsHoldAndAreTight) {
  for (const int64_t m : {30, 200, 500}) {
    for (const double exponent : {0.5, 1.0, 1.5}) {
      for (uint64_t seed = 0; seed < 4; ++seed) {
        const auto spectrum = power_law(m, exponent) * (0.5 + gaussian({m}, seed, at::kDouble).abs());
        const auto a = with_spectrum(spectrum, m, m + 40, seed);
        const double truth = at::linalg_svdvals(a.to(at::kDouble)).sum().item<double>();
        GramMatrix gram(a);
        auto filter = RationalFilter::solve(gram);
        ASSERT_TRUE(filter.has_value());
        while (filter->refine(gram)) {
        }
        const auto bounds = filter->nuclear_norm();
        EXPECT_LE(bounds.lower, truth) << m << " " << exponent;
        EXPECT_GE(bounds.upper, truth) << m << " " << exponent;
        EXPECT_LE(bounds.upper - bounds.lower, (exponent > 1 ? 0.1 : 0.01) * truth) << m << " " << exponent;
      }
    }
  }
}

// With two threads, the third and the fourth inverse are computed in parallel.
TEST(RationalFilter, SpectraBelowTheSmallestPole) {
  const testing::ThreadGuard threads(2);
  constexpr int64_t kSide = 200;
  const auto spectrum = power_law(kSide, 0.1) * 0.004;
  spectrum[0] = 1;
  const auto a = with_spectrum(spectrum, kSide, kSide, 4);
  GramMatrix gram(a);
  auto filter = RationalFilter::solve(gram);
  ASSERT_TRUE(filter.has_value());
  EXPECT_TRUE(filter->refine(gram));
  EXPECT_TRUE(filter->refine(gram));
  EXPECT_FALSE(filter->refine(gram));
  const double truth = spectrum.sum().item<double>();
  EXPECT_LE(filter->value(), truth);
  EXPECT_GE(filter->value(), 0.95 * truth);
  EXPECT_LE(filter->nuclear_norm().lower, truth);
  EXPECT_GE(filter->nuclear_norm().upper, truth);
  const double value = filter->value() + filter->value_rounding();
  EXPECT_NEAR((a * gemm(std::move(*filter).matrix(), a)).sum(at::kDouble).item<double>(), value,
              1e-3 * truth);
}

TEST(RationalFilter, FiltersTheSingularValues) {
  const auto spectrum = power_law(60, 0.9);  // the smallest singular value, 0.025, is above every cutoff
  const auto a = with_spectrum(spectrum, 60, 90, 2, at::kDouble);
  for (int inverses = 2; inverses <= 5; ++inverses) {
    for (const bool passband : {false, true}) {
      SCOPED_TRACE(c10::str(inverses, " inverses, by ", passband ? "passband" : "value"));
      const GramMatrix gram(a);
      auto filter = RationalFilter::solve(gram);
      ASSERT_TRUE(filter.has_value());
      for (int i = 2; i < inverses; ++i) ASSERT_TRUE(filter->refine(gram));
      const double value = filter->value(), rounding = filter->value_rounding(), cutoff = filter->cutoff();
      if (passband) filter->maximize_passband();
      const double least = filter->passband_min();
      const auto x = gemm(std::move(*filter).matrix(), a);
      const auto values = at::linalg_svdvals(x);
      EXPECT_LE(values.max().item<double>(), 1 + 1e-9);
      EXPECT_LT(cutoff, 0.026 * std::sqrt(gram.lambda));
      EXPECT_GE(values.min().item<double>(), least - 1e-9);
      if (passband) {
        EXPECT_GT(least, 0.9);
      } else {
        EXPECT_NEAR(value + rounding, (a * x).sum().item<double>(),
                    testing::rounding(at::kDouble, 90) * std::pow(testing::condition_number(a), 2));
      }
    }
  }
  const auto fine = apply_fine_filter(a);
  ASSERT_TRUE(fine.has_value());
  EXPECT_LT(fine->cutoff, 0.002);
  const auto values = at::linalg_svdvals(fine->x);
  EXPECT_LE(values.max().item<double>(), 1 + 1e-12);
  EXPECT_GE(values.min().item<double>(), fine->passband_min - 1e-9);
}

}  // namespace
}  // namespace tensorion
