#include "tensorion/zolotarev.h"

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
  const auto check = [](double floor, double alpha, std::span<const double> beta, std::span<const double> c) {
    for (double x = kResolution; x <= 1; x *= 1.0003) {
      const double f = filter(x, alpha, beta, c);
      ASSERT_LE(f, 1 + 1e-9) << x;
      ASSERT_GE(f, floor - 1e-9) << x;
    }
    // Concave below the resolution: the certificate of later passes rests on f(x) >= floor x / resolution there.
    double before = 0, slope = 1e300;
    for (int i = 1; i <= 1000; ++i) {
      const double f = filter(kResolution * i / 1000, alpha, beta, c);
      ASSERT_LE(f - before, slope * (1 + 1e-9)) << i;
      slope = f - before;
      before = f;
    }
  };
  check(kCoarseFloor, kCoarseAlpha, kCoarseBeta, kCoarseC);
  check(kFineFloor, kFineAlpha, kFineBeta, kFineC);
}

TEST(Zolotarev, FourPolesAreTwoHalleySteps) {
  // Nakatsukasa, Bai and Gygi's dynamical weights.
  double l = kResolution;
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

TEST(Zolotarev, CertificatesBoundTheSquareRoot) {
  for (int k = 0; k < kCertificates; ++k) {
    for (double s = 1e-13; s <= 1; s *= 1.00017) {
      std::vector<double> basis{1, s, s * s};
      for (const double c : kCoarseC) {
        basis.push_back(c / (s + c));
        basis.push_back(std::pow(c / (s + c), 2));
        basis.push_back(std::log1p(s / c));
      }
      double upper = 0, lower = 0;
      for (int i = 0; i < kMoments; ++i) {
        upper += kUpper[k][i] * basis[i];
        lower += kLower[k][i] * basis[i];
      }
      ASSERT_GE(upper, std::sqrt(s) - 1e-9) << k << " " << s;
      ASSERT_LE(lower, std::sqrt(s) + 1e-9) << k << " " << s;
    }
  }
}

TEST(Zolotarev, NuclearNormIsCertifiedClosely) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const double exponent : {0.0, 0.5, 1.0}) {
      const auto spectrum = power_law(150, exponent) * 3;
      const double truth = spectrum.sum().item<double>();
      const auto pass = ZolotarevPass::solve(with_spectrum(spectrum, 150, 200, 1, dtype), ZolotarevPass::Accuracy::coarse);
      ASSERT_TRUE(pass.has_value());
      EXPECT_LE(pass->nuclear_norm().lower, truth);
      EXPECT_GE(pass->nuclear_norm().upper, truth);
      EXPECT_LE(pass->nuclear_norm().upper - pass->nuclear_norm().lower, 0.003 * truth) << exponent;
    }
  }
}

TEST(Zolotarev, PassFiltersTheSingularValues) {
  const auto spectrum = power_law(60, 1.5);
  for (const auto accuracy : {ZolotarevPass::Accuracy::coarse, ZolotarevPass::Accuracy::fine}) {
    const auto a = with_spectrum(spectrum, 60, 90, 2, at::kDouble);
    const auto pass = ZolotarevPass::solve(a, accuracy);
    ASSERT_TRUE(pass.has_value());
    const auto values = at::linalg_svdvals(pass->apply(a));
    EXPECT_LE(values.max().item<double>(), 1 + 1e-12);
    EXPECT_GE(values.min().item<double>(), pass->floor() - 1e-9);  // 60^-1.5 is above the resolution
    EXPECT_LT(pass->resolution(), 60 * 1e-3);
  }
}

}  // namespace
}  // namespace tensorion
