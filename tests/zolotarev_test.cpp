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

double filter(double x, double alpha, std::span<const double> beta, std::span<const double> c) {
  double p = alpha;
  for (size_t j = 0; j < c.size(); ++j) p += beta[j] / (x * x + c[j]);
  return x * p;
}

TEST(Zolotarev, FiltersStayBetweenFloorAndOne) {
  const auto check = [](double resolution, double floor, double alpha, std::span<const double> beta,
                        std::span<const double> c) {
    for (double x = resolution; x <= 1; x *= 1.0003) {
      const double f = filter(x, alpha, beta, c);
      ASSERT_LE(f, 1 + 1e-9) << x;
      ASSERT_GE(f, floor - 1e-9) << x;
    }
    // Concave below the resolution: the certificate of later passes rests on f(x) >= floor x / resolution
    // there.
    double before = 0, slope = 1e300;
    for (int i = 1; i <= 1000; ++i) {
      const double f = filter(resolution * i / 1000, alpha, beta, c);
      ASSERT_LE(f - before, slope * (1 + 1e-9)) << i;
      slope = f - before;
      before = f;
    }
  };
  check(kLightResolution, kLightFloor, kLightAlpha, kLightBeta, kLightC);
  check(kCoarseResolution, kCoarseFloor, kCoarseAlpha, kCoarseBeta, kCoarseC);
  check(kFineResolution, kFineFloor, kFineAlpha, kFineBeta, kFineC);
}

TEST(Zolotarev, FourPolesAreTwoHalleySteps) {
  // Nakatsukasa, Bai and Gygi's dynamical weights.
  double l = kCoarseResolution;
  std::vector<std::array<double, 3>> steps;
  for (int i = 0; i < 2; ++i) {
    const double d = std::cbrt(4 * (1 - l * l) / std::pow(l, 4));
    const double root = std::sqrt(1 + d);
    const double a = root + 0.5 * std::sqrt(8 - 4 * d + 8 * (2 - l * l) / (l * l * root));
    const double b = (a - 1) * (a - 1) / 4, c = a + b - 1;
    steps.push_back({a, b, c});
    l *= (a + b * l * l) / (1 + c * l * l);
  }
  EXPECT_NEAR(l, kCoarseFloor, 1e-6);
  for (double x = 1e-6; x <= 1; x *= 1.3) {
    double y = x;
    for (const auto& [a, b, c] : steps) y *= (a + b * y * y) / (1 + c * y * y);
    EXPECT_NEAR(filter(x, kCoarseAlpha, kCoarseBeta, kCoarseC), y, 1e-6) << x;
  }
}

template <size_t N>
void expect_bounds(const double (&upper)[kCertificates][N], const double (&lower)[kCertificates][N],
                   std::span<const double> poles) {
  for (int k = 0; k < kCertificates; ++k) {
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
  expect_bounds(kLightUpper, kLightLower, kLightC);
  expect_bounds(kCoarseUpper, kCoarseLower, kCoarseC);
}

// The derivatives of the certificates by differences, against the last four numbers of their rows.
template <size_t N>
void expect_sensitivities(const double (&rows)[kCertificates][N], std::span<const double> poles) {
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
    ASSERT_LE(std::abs(first), limits[2] * 1.001);
    for (double s = smallest / 10; s <= 1; s *= 1.01) {
      const double slope = (bound(s * 1.001) - bound(s * 0.999)) / (0.002 * s);
      const double u = smallest / (s + smallest);
      ASSERT_LE(slope * slope, (limits[0] * u + limits[1] * u * u) * (1 + 1e-4)) << s;
      ASSERT_LE(std::abs(slope - first), limits[3] * (1 - u) * 1.01 + 0.01 * std::abs(first)) << s;
    }
  }
}

TEST(Zolotarev, SensitivitiesBoundTheDerivatives) {
  expect_sensitivities(kLightUpper, kLightC);
  expect_sensitivities(kLightLower, kLightC);
  expect_sensitivities(kCoarseUpper, kCoarseC);
  expect_sensitivities(kCoarseLower, kCoarseC);
}

TEST(Zolotarev, GramMatrixBounds) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t m = 1 + random() % 20;
    const auto spectrum = gaussian({m}, trial, at::kDouble).abs().pow(1 + trial % 4);
    const auto a = with_spectrum(spectrum, m, m + trial % 7, trial, at::kDouble);
    const GramMatrix gram(a);
    EXPECT_GE(gram.lambda, spectrum.max().square().item<double>());
    EXPECT_GE(gram.nuclear_upper, spectrum.sum().item<double>());
    EXPECT_LE(gram.nuclear_upper, std::sqrt(m) * a.norm().item<double>() * (1 + 1e-5))
        << "no better than Cauchy-Schwarz";
  }
}

// Rounding of the Gram matrix had hidden the small singular values.
TEST(Zolotarev, UpperBoundNearRankOneInSinglePrecision) {
  for (int trial = 0; trial < 500; ++trial) {
    const int64_t m = 2 + trial % 5;
    const auto spectrum = at::full({m}, std::pow(10.0, -2 - trial % 4), at::kDouble);
    spectrum[0] = 1;
    const auto a = with_spectrum(spectrum, m, m + trial % 7, trial, at::kFloat);
    const double norm = at::linalg_svdvals(a.to(at::kDouble)).sum().item<double>();
    EXPECT_GE(GramMatrix(a).nuclear_upper, norm) << trial;
  }
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
        auto pass = ZolotarevPass::solve(gram, ZolotarevPass::Accuracy::light);
        ASSERT_TRUE(pass.has_value()) << what;
        for (int refined = 0; refined < 2; ++refined) {
          if (refined == 1) {
            ASSERT_TRUE(pass->refine(gram)) << what;
          }
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
  using Accuracy = ZolotarevPass::Accuracy;
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const double exponent : {0.0, 0.5, 1.0}) {
      const auto spectrum = power_law(150, exponent) * 3;
      const double truth = spectrum.sum().item<double>();
      GramMatrix gram(with_spectrum(spectrum, 150, 200, 1, dtype));
      auto pass = ZolotarevPass::solve(gram, Accuracy::light);
      ASSERT_TRUE(pass.has_value());
      for (const double width : {0.02, 0.003}) {
        if (width < 0.01) {
          ASSERT_TRUE(pass->refine(gram));
        }
        EXPECT_LE(pass->nuclear_norm().lower, truth);
        EXPECT_GE(pass->nuclear_norm().upper, truth);
        EXPECT_LE(pass->nuclear_norm().upper - pass->nuclear_norm().lower, width * truth) << exponent;
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
        auto pass = ZolotarevPass::solve(gram, ZolotarevPass::Accuracy::light);
        ASSERT_TRUE(pass.has_value());
        ASSERT_TRUE(pass->refine(gram));
        EXPECT_FALSE(pass->refine(gram));
        const auto bounds = pass->nuclear_norm();
        EXPECT_LE(bounds.lower, truth) << m << " " << exponent;
        EXPECT_GE(bounds.upper, truth) << m << " " << exponent;
        EXPECT_LE(bounds.upper - bounds.lower, (exponent > 1 ? 0.06 : 0.01) * truth) << m << " " << exponent;
      }
    }
  }
}

TEST(Zolotarev, PassFiltersTheSingularValues) {
  using Accuracy = ZolotarevPass::Accuracy;
  const auto spectrum = power_law(60, 1.1);  // the smallest, 0.011, is above every resolution
  for (const auto accuracy : {Accuracy::light, Accuracy::coarse, Accuracy::fine}) {
    const auto a = with_spectrum(spectrum, 60, 90, 2, at::kDouble);
    GramMatrix gram(a);
    auto pass = ZolotarevPass::solve(gram, accuracy == Accuracy::coarse ? Accuracy::light : accuracy);
    ASSERT_TRUE(pass.has_value());
    if (accuracy == Accuracy::coarse) {
      ASSERT_TRUE(pass->refine(gram));
    }
    const auto x = pass->apply(a);
    const auto values = at::linalg_svdvals(x);
    EXPECT_LE(values.max().item<double>(), 1 + 1e-12);
    EXPECT_GE(values.min().item<double>(), pass->floor() - 1e-9);
    EXPECT_LT(pass->resolution(), 0.011);
    if (accuracy != Accuracy::fine) {
      EXPECT_NEAR(pass->value(), (a * x).sum().item<double>(), 1e-10);
    }
  }
}

}  // namespace
}  // namespace tensorion
