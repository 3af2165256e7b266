#include "tensorion/zolotarev.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>

#include "tensorion/zolotarev_tables.h"
#include "tests/support.h"

namespace tensorion {
namespace {

using namespace zolotarev;
using testing::gaussian;
using testing::power_law;
using testing::with_spectrum;

// f of a row alpha, gamma, beta_j.
double filter(double x, const double* row, std::span<const double> poles) {
  double q = row[0] + row[1] * x * x;
  for (size_t j = 0; j < poles.size(); ++j) q += row[2 + j] / (x * x + poles[j]);
  return x * q;
}

template <size_t Filters, size_t Width>
void expect_filters(const double (&rows)[Filters][Width], std::span<const double> floors, double resolution,
                    std::span<const double> poles) {
  ASSERT_EQ(floors.size(), Filters);
  for (size_t i = 0; i < Filters; ++i) {
    for (double x = 1e-6; x <= 1; x *= 1.0003) {
      const double f = filter(x, rows[i], poles);
      ASSERT_LE(f, 1 + 1e-9) << i << " " << x;
      ASSERT_GE(f, -1e-5) << i << " " << x;
      // The certificate of later passes rests on this.
      ASSERT_GE(f, (floors[i] - 1e-9) * std::min(1.0, x / resolution)) << i << " " << x;
    }
  }
  EXPECT_GT(*std::max_element(floors.begin(), floors.end()), 0.9);
}

TEST(Zolotarev, FiltersStayBetweenFloorAndOne) {
  const std::span<const double> poles(kPoles);
  expect_filters(kTwoFilters, kTwoFloors, kTwoResolution, poles.first(2));
  expect_filters(kThreeFilters, kThreeFloors, kThreeResolution, poles.first(3));
  expect_filters(kFourFilters, kFourFloors, kFourResolution, poles.first(4));
  expect_filters(kFiveFilters, kFiveFloors, kFiveResolution, poles);
}

// Zolotarev's function is known by its extremes: as many as it can have, in turn at the floor and at 1.
TEST(Zolotarev, FineFilterEquioscillates) {
  int extremes = 0;
  double last = -1;
  for (double x = kFineResolution; x <= 1; x *= 1.00003) {
    const double f = filter(x, kFineFilter, kFinePoles);
    ASSERT_LE(f, 1 + 1e-9) << x;
    ASSERT_GE(f, kFineFloor - 1e-9) << x;
    for (const double extreme : {kFineFloor, 1.0}) {
      if (std::abs(f - extreme) < 1e-6 && extreme != last) {
        ++extremes;
        last = extreme;
      }
    }
  }
  EXPECT_GE(extremes, 2 * static_cast<int>(std::size(kFinePoles)) + 1);
}

template <size_t Count, size_t N>
void expect_bounds(const double (&upper)[Count][N], const double (&lower)[Count][N],
                   std::span<const double> poles) {
  for (size_t k = 0; k < Count; ++k) {
    for (double s = 1e-13; s <= 1; s *= 1.00017) {
      std::vector<double> basis{1, s, s * s};
      for (const double c : poles) {
        basis.push_back(c / (s + c));
        basis.push_back(std::pow(c / (s + c), 2));
        basis.push_back(std::log1p(s / c));
      }
      ASSERT_GE(std::inner_product(basis.begin(), basis.end(), upper[k], 0.0), std::sqrt(s) - 1e-9)
          << k << " " << s;
      ASSERT_LE(std::inner_product(basis.begin(), basis.end(), lower[k], 0.0), std::sqrt(s) + 1e-9)
          << k << " " << s;
    }
  }
}

TEST(Zolotarev, CertificatesBoundTheSquareRoot) {
  const std::span<const double> poles(kPoles);
  expect_bounds(kTwoUpper, kTwoLower, poles.first(2));
  expect_bounds(kThreeUpper, kThreeLower, poles.first(3));
  expect_bounds(kFourUpper, kFourLower, poles.first(4));
  expect_bounds(kFiveUpper, kFiveLower, poles);
}

// The derivatives of the certificates by differences, against the last four numbers of their rows.
template <size_t Count, size_t N>
void expect_sensitivities(const double (&rows)[Count][N], std::span<const double> poles) {
  const double smallest = *std::min_element(poles.begin(), poles.end());
  for (const auto& row : rows) {
    const auto bound = [&](double s) {
      double sum = row[0] + row[1] * s + row[2] * s * s;
      for (size_t j = 0; j < poles.size(); ++j) {
        const double u = poles[j] / (s + poles[j]);
        sum += row[3 + 3 * j] * u + row[4 + 3 * j] * u * u - row[5 + 3 * j] * std::log(u);
      }
      return sum;
    };
    const auto* limits = row + N - 4;
    const double first = (bound(1e-3 * smallest) - bound(0)) / (1e-3 * smallest);
    ASSERT_LE(std::abs(first), limits[2] + 0.002 * limits[3]);
    for (double s = smallest / 10; s <= 1; s *= 1.01) {
      const double slope = (bound(s * 1.001) - bound(s * 0.999)) / (0.002 * s);
      const double u = smallest / (s + smallest);
      ASSERT_LE(slope * slope, (limits[0] * u + limits[1] * u * u) * (1 + 1e-4)) << s;
      ASSERT_LE(std::abs(slope - first), limits[3] * (1 - u) * 1.01 + 0.01 * std::abs(first)) << s;
    }
  }
}

TEST(Zolotarev, SensitivitiesBoundTheDerivatives) {
  const std::span<const double> poles(kPoles);
  expect_sensitivities(kTwoUpper, poles.first(2));
  expect_sensitivities(kTwoLower, poles.first(2));
  expect_sensitivities(kThreeUpper, poles.first(3));
  expect_sensitivities(kThreeLower, poles.first(3));
  expect_sensitivities(kFourUpper, poles.first(4));
  expect_sensitivities(kFourLower, poles.first(4));
  expect_sensitivities(kFiveUpper, poles);
  expect_sensitivities(kFiveLower, poles);
}

// Errors of sums whose terms are alike have one sign and grow with the number of terms: bounds had been below
// the norm by 6e-4, values above it by 1e-5.
TEST(Zolotarev, BoundsHoldForValuesAlikeInSinglePrecision) {
  for (const int64_t n : {9, 144, 576, 1152}) {
    const int64_t m = std::min<int64_t>(n, 64);
    for (const double noise : {0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2}) {
      for (const double level : {1.1, 0.7, 1.9}) {
        const auto a = (level + noise * gaussian({m, n}, n, at::kDouble)).to(at::kFloat);
        const auto what = c10::str(m, " x ", n, ", ", level, " + ", noise);
        const double truth = at::linalg_svdvals(a.to(at::kDouble)).sum().item<double>();
        GramMatrix gram(a);
        EXPECT_GE(gram.nuclear_upper, truth) << what;
        auto pass = ZolotarevPass::solve(gram);
        ASSERT_TRUE(pass.has_value()) << what;
        for (bool refined = true; refined; refined = pass->refine(gram)) {
          EXPECT_LE(pass->value(), truth) << what;
          EXPECT_LE(pass->nuclear_norm().lower, truth) << what;
          EXPECT_GE(pass->nuclear_norm().upper, truth) << what;
        }
        const double value = (a * pass->apply(a)).sum(at::kDouble).item<double>();
        EXPECT_LE(value - pass->value_rounding(), truth) << what;
      }
    }
  }
}

TEST(Zolotarev, NuclearNormIsCertifiedClosely) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const double exponent : {0.0, 0.5, 1.0}) {
      SCOPED_TRACE(c10::str(dtype, ", exponent ", exponent));
      const auto spectrum = power_law(150, exponent) * 3;
      const double truth = spectrum.sum().item<double>();
      GramMatrix gram(with_spectrum(spectrum, 150, 200, 1, dtype));
      auto pass = ZolotarevPass::solve(gram);
      ASSERT_TRUE(pass.has_value());
      for (const double width : {0.08, 0.02, 0.005, 0.002}) {
        EXPECT_LE(pass->nuclear_norm().lower, truth);
        EXPECT_GE(pass->nuclear_norm().upper, truth);
        EXPECT_LE(pass->nuclear_norm().upper - pass->nuclear_norm().lower, width * truth);
        EXPECT_EQ(pass->refine(gram), width > 0.002);
      }
    }
  }
}

// The larger and the steeper, the more rounding there is to be allowed for.
TEST(Zolotarev, RefinedBoundsAreCloseAndTrue) {
  for (const int64_t m : {30, 200, 500}) {
    for (const double exponent : {0.5, 1.0, 1.5}) {
      for (uint64_t seed = 0; seed < 4; ++seed) {
        const auto spectrum = power_law(m, exponent) * (0.5 + gaussian({m}, seed, at::kDouble).abs());
        const auto a = with_spectrum(spectrum, m, m + 40, seed);
        const double truth = at::linalg_svdvals(a.to(at::kDouble)).sum().item<double>();
        GramMatrix gram(a);
        auto pass = ZolotarevPass::solve(gram);
        ASSERT_TRUE(pass.has_value());
        while (pass->refine(gram)) {
        }
        const auto bounds = pass->nuclear_norm();
        EXPECT_LE(bounds.lower, truth) << m << " " << exponent;
        EXPECT_GE(bounds.upper, truth) << m << " " << exponent;
        EXPECT_LE(bounds.upper - bounds.lower, (exponent > 1 ? 0.065 : 0.01) * truth) << m << " " << exponent;
      }
    }
  }
}

// Two threads: the third and the fourth inverse side by side.
TEST(Zolotarev, SpectraBelowTheSmallestPole) {
  const testing::ThreadGuard threads(2);
  constexpr int64_t kSide = 200;
  const auto spectrum = power_law(kSide, 0.1) * 0.004;
  spectrum[0] = 1;
  const auto a = with_spectrum(spectrum, kSide, kSide, 4);
  GramMatrix gram(a);
  auto pass = ZolotarevPass::solve(gram);
  ASSERT_TRUE(pass.has_value());
  EXPECT_TRUE(pass->refine(gram));
  EXPECT_TRUE(pass->refine(gram));
  EXPECT_FALSE(pass->refine(gram));
  const double truth = spectrum.sum().item<double>();
  EXPECT_LE(pass->value(), truth);
  EXPECT_GE(pass->value(), 0.95 * truth);
  EXPECT_LE(pass->nuclear_norm().lower, truth);
  EXPECT_GE(pass->nuclear_norm().upper, truth);
  const double value = pass->value() + pass->value_rounding();
  EXPECT_NEAR((a * pass->apply(a)).sum(at::kDouble).item<double>(), value, 1e-3 * truth);
}

TEST(Zolotarev, PassFiltersTheSingularValues) {
  const auto spectrum = power_law(60, 0.9);  // the smallest, 0.025, is above every resolution
  const auto a = with_spectrum(spectrum, 60, 90, 2, at::kDouble);
  for (int inverses = 2; inverses <= 5; ++inverses) {
    for (const bool floor : {false, true}) {
      SCOPED_TRACE(c10::str(inverses, " inverses, ", floor ? "with" : "without", " a floor"));
      GramMatrix gram(a);
      auto pass = ZolotarevPass::solve(gram);
      ASSERT_TRUE(pass.has_value());
      for (int i = 2; i < inverses; ++i) ASSERT_TRUE(pass->refine(gram));
      const double value = pass->value(), rounding = pass->value_rounding(), resolution = pass->resolution();
      if (floor) pass->choose_floor();
      const double least = pass->floor();
      const auto x = pass->apply(a);
      const auto values = at::linalg_svdvals(x);
      EXPECT_LE(values.max().item<double>(), 1 + 1e-9);
      EXPECT_LT(resolution, 0.026 * std::sqrt(gram.lambda));
      EXPECT_GE(values.min().item<double>(), least - 1e-9);
      if (floor) {
        EXPECT_GT(least, 0.9);
      } else {
        EXPECT_NEAR(value + rounding, (a * x).sum().item<double>(),
                    testing::rounding(at::kDouble, 90) * std::pow(testing::condition_number(a), 2));
      }
    }
  }
  auto fine = ZolotarevPass::solve_finely(GramMatrix(a));
  ASSERT_TRUE(fine.has_value());
  EXPECT_LT(fine->resolution(), 0.002);
  const auto values = at::linalg_svdvals(fine->apply(a));
  EXPECT_LE(values.max().item<double>(), 1 + 1e-12);
  EXPECT_GE(values.min().item<double>(), fine->floor() - 1e-9);
}

}  // namespace
}  // namespace tensorion
