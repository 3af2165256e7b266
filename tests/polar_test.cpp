#include "tensorion/polar.h"

#include <limits>

#include "tensorion/polar/nuclear_norm_estimator.h"
#include "tensorion/polar/polar_factor.h"
#include "tests/support.h"

extern "C" int MKL_Get_Max_Threads() __attribute__((weak));

namespace tensorion {
namespace {

using testing::expect_close;
using testing::expect_error;
using testing::gaussian;
using testing::polar_rounding;
using testing::power_law;
using testing::rounding;
using testing::ThreadGuard;
using testing::with_spectrum;

double spectral_norm(const at::Tensor& x) { return at::linalg_svdvals(x).max().item<double>(); }

// Returns U V^T, computed in double precision.
at::Tensor exact(const at::Tensor& a) {
  const auto [u, s, vh] = at::linalg_svd(a.to(at::kDouble), false);
  return at::matmul(u, vh);
}

struct Quality {
  double q;
  double norm;
};

Quality quality(const at::Tensor& a, const at::Tensor& x, double nuclear) {
  const double norm = spectral_norm(x.to(at::kFloat));
  return {(a.to(at::kDouble) * x.to(at::kDouble)).sum().item<double>() / (norm * nuclear), norm};
}

Quality quality(const at::Tensor& a, const at::Tensor& x) {
  return quality(a, x, at::linalg_svdvals(a.to(at::kDouble)).sum().item<double>());
}

using Shape = std::pair<int64_t, int64_t>;

TEST(Polar, DefaultReachesTargetQualityOnGaussians) {
  const std::vector<Shape> shapes{{1, 1},   {1, 9},    {2, 2},     {3, 7},     {16, 16},  {16, 4096},
                                  {64, 27}, {64, 576}, {200, 200}, {257, 300}, {511, 129}};
  for (const auto& [m, n] : shapes) {
    SCOPED_TRACE(c10::str(m, " x ", n));
    const auto a = gaussian({m, n}, 10 * m + n);
    const auto [q, norm] = quality(a, polar(a));
    EXPECT_GE(q, 0.97);
    EXPECT_LE(norm, 1.02);
  }
}

class PolarOfPowerLaws : public ::testing::TestWithParam<double> {};
INSTANTIATE_TEST_SUITE_P(Polar, PolarOfPowerLaws, ::testing::Values(0.5, 1.0, 2.0));

TEST_P(PolarOfPowerLaws, DefaultReachesTargetQuality) {
  for (const auto& [m, n] : std::vector<Shape>{{5, 5}, {48, 48}, {100, 700}, {400, 400}, {700, 300}}) {
    SCOPED_TRACE(c10::str(m, " x ", n));
    const auto spectrum = power_law(std::min(m, n), GetParam());
    const auto a = with_spectrum(spectrum, m, n, m);
    const auto [q, norm] = quality(a, polar(a), spectrum.sum().item<double>());
    EXPECT_GE(q, 0.97);
    EXPECT_LE(norm, 1.02);
  }
}

TEST(Polar, DefaultReachesTargetQualityAtFullSize) {
  constexpr int64_t m = 1536;
  const auto gaussian_matrix = gaussian({m, m}, 1);
  const auto nuclear = at::linalg_svdvals(gaussian_matrix).sum().item<double>();
  const auto [q, norm] = quality(gaussian_matrix, polar(gaussian_matrix), nuclear);
  EXPECT_GE(q, 0.97);
  EXPECT_LE(norm, 1.02);
  for (const double exponent : {1.0, 2.0}) {
    const auto spectrum = power_law(m, exponent);
    // Make random orthonormal factors from Householder reflections, because two QR factorizations of this
    // size are slow.
    auto a = at::diag(spectrum);
    for (int i = 0; i < 4; ++i) {
      const auto u = gaussian({m, 1}, 20 + i, at::kDouble);
      a = (a - at::matmul(u, at::matmul(u.mT(), a)) * (2 / u.square().sum())).mT();
    }
    const auto [power_q, power_norm] =
        quality(a.to(at::kFloat), polar(a.to(at::kFloat)), spectrum.sum().item<double>());
    EXPECT_GE(power_q, 0.97) << exponent;
    EXPECT_LE(power_norm, 1.02) << exponent;
  }
}

// Spectra like those of momenta in training: the ratio of the largest to the median singular value is 10 to
// 80, and that of the median to the smallest is 4 to 2000.
TEST(Polar, DefaultReachesTargetQualityOnTrainingSpectra) {
  for (const auto& [top, bottom] :
       std::vector<std::pair<double, double>>{{10, 4}, {80, 2000}, {80, 4}, {30, 100}}) {
    SCOPED_TRACE(c10::str("largest over median ", top, ", median over smallest ", bottom));
    const auto x = at::linspace(0, 1, 192, testing::options(at::kDouble));
    const auto upper_half = at::pow(top, 1 - (2 * x).pow(0.3));
    const auto lower_half = at::pow(bottom, -(2 * x - 1).clamp_min(0).pow(3));
    const auto spectrum = at::where(x < 0.5, upper_half, lower_half);
    const auto a = with_spectrum(spectrum, 192, 192, 5);
    const auto factor = certified_polar(a);
    const auto [q, norm] = quality(a, factor.x, spectrum.sum().item<double>());
    EXPECT_GE(q, 0.975);
    EXPECT_LE(norm, 1.01);
    EXPECT_GE(factor.value, 0.97 * factor.nuclear.upper);
  }
}

class PolarCertificate : public ::testing::TestWithParam<std::tuple<at::ScalarType, std::string>> {};
INSTANTIATE_TEST_SUITE_P(Polar, PolarCertificate,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kDouble),
                                            ::testing::Values("halley", "svd", "newton_schulz")),
                         [](const auto& info) {
                           return c10::str(std::get<0>(info.param), "_", std::get<1>(info.param));
                         });

TEST_P(PolarCertificate, Holds) {
  const auto& [dtype, method] = GetParam();
  for (const double exponent : {0.0, 0.5, 1.0, 2.0, 4.0}) {
    SCOPED_TRACE(exponent);
    const auto spectrum = power_law(80, exponent);
    const auto a = with_spectrum(spectrum, 80, 130, 3, dtype);
    const auto factor = certified_polar(a, {.method = method});
    const double truth = spectrum.sum().item<double>();
    // Rounding of the input to fp32 also changes its nuclear norm.
    const double slack = rounding(dtype, 130) * truth;
    EXPECT_LE(factor.value, truth + slack);
    EXPECT_LE(factor.nuclear.lower, truth + slack);
    EXPECT_GE(factor.nuclear.upper, truth - slack);
    const double attained = (a.to(at::kDouble) * factor.x.to(at::kDouble)).sum().item<double>() /
                            std::max(1.0, spectral_norm(factor.x.to(at::kDouble)));
    EXPECT_LE(factor.value, attained + 5e-3 * truth);
  }
}

// Tests that run for every method.
class PolarMethod : public ::testing::TestWithParam<std::string> {
 protected:
  const PolarOptions options{.method = GetParam()};
  double tolerance(const at::Tensor& a) const { return polar_rounding(a, options.method); }
};
INSTANTIATE_TEST_SUITE_P(Polar, PolarMethod, ::testing::Values("halley", "newton_schulz", "svd"),
                         [](const auto& info) { return info.param; });

TEST(Polar, SvdMatchesReference) {
  for (const auto& [m, n] : std::vector<Shape>{{1, 1}, {4, 9}, {9, 4}, {40, 40}}) {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      SCOPED_TRACE(c10::str(m, " x ", n, " ", dtype));
      const auto a = gaussian({m, n}, m, dtype);
      expect_close(polar(a, {.method = "svd"}), exact(a), polar_rounding(a, "svd"));
    }
  }
}

TEST(Polar, RankDeficientInputAddsNoDirections) {
  const auto spectrum = at::tensor({3.0, 1.0, 0.2}, at::kDouble);
  const auto a = with_spectrum(spectrum, 40, 60, 7);
  const auto expected = with_spectrum(at::ones({3}, at::kDouble), 40, 60, 7, at::kDouble);
  expect_close(polar(a, {.method = "svd"}), expected, rounding(at::kFloat, 60) * 3.0 / 0.2);
  const auto x = polar(a);
  EXPECT_LE(spectral_norm(x), 1.02);
  EXPECT_GE((a * x).sum().item<double>(), 0.97 * 4.2);
}

TEST(Polar, OrthogonalMatricesRepeatedValuesAndVectors) {
  const auto q = std::get<0>(at::linalg_qr(gaussian({50, 50}, 8, at::kDouble))).to(at::kFloat);
  // The tolerance is larger than rounding, because the last iteration stops as soon as singular values are
  // near 1.
  expect_close(polar(q), q, 3e-4, "orthogonal");
  expect_close(polar(q * 7), q, 3e-4, "multiple of an orthogonal matrix");
  const auto two_values =
      with_spectrum(at::cat({at::ones({10}), at::full({10}, 0.01)}).to(at::kDouble), 20, 30, 9);
  const auto [repeated_q, norm] = quality(two_values, polar(two_values));
  EXPECT_GE(repeated_q, 0.97);
  EXPECT_LE(norm, 1.02);
  const auto row = gaussian({1, 33}, 10);
  expect_close(polar(row), row / row.norm(), polar_rounding(row), "1 x n");
  expect_close(polar(row.mT()), (row / row.norm()).mT(), polar_rounding(row), "n x 1");
  EXPECT_NEAR(polar(at::full({1, 1}, -3.0)).item<float>(), -1, polar_rounding(at::ones({1, 1})));
}

TEST_P(PolarMethod, IsScaleInvariant) {
  const auto a = gaussian({24, 40}, 11);
  const auto expected = polar(a, options);
  for (const double scale : {1e-30, 1e-12, 1e-3, 1e6, 1e30}) {
    expect_close(polar(a * scale, options), expected, tolerance(a), std::to_string(std::log10(scale)));
  }
  const auto mixed = at::tensor({1e30, 1e-30, 1e-30, 1e-30}).reshape({2, 2});
  EXPECT_TRUE(at::isfinite(polar(mixed, options)).all().item<bool>());
}

TEST(Polar, ScalingByPowersOfTwoIsExact) {
  const auto a = gaussian({24, 40}, 11);
  EXPECT_TRUE(at::equal(polar(a * std::ldexp(1.0, 80)), polar(a * std::ldexp(1.0, -80))));
  const auto denormal = at::full({3, 4}, 1e-42);
  EXPECT_TRUE(at::isfinite(polar(denormal)).all().item<bool>());
  EXPECT_NEAR(polar(denormal).norm().item<double>(), 1, 1e-3);
}

TEST_P(PolarMethod, ZeroAndEmptyMatrices) {
  EXPECT_TRUE(at::equal(polar(at::zeros({5, 7}), options), at::zeros({5, 7})));
  EXPECT_EQ(polar(at::zeros({0, 7}), options).sizes(), at::IntArrayRef({0, 7}));
  EXPECT_EQ(polar(at::zeros({2, 5, 0}), options).sizes(), at::IntArrayRef({2, 5, 0}));
}

TEST_P(PolarMethod, BatchMatchesSingleMatrices) {
  auto batch = gaussian({2, 3, 20, 30}, 12);
  batch[1][2].zero_();
  const auto whole = polar(batch, options);
  ASSERT_EQ(whole.sizes(), batch.sizes());
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 3; ++j) {
      expect_close(whole[i][j], polar(batch[i][j], options), tolerance(batch[i][j]), c10::str(i, ", ", j));
    }
  }
}

TEST_P(PolarMethod, AcceptsAnyLayoutAndTransposes) {
  const auto a = gaussian({30, 50}, 13);
  const auto before = a.clone();
  const auto expected = polar(a, options);
  expect_close(polar(a.mT(), options), expected.mT(), tolerance(a), "transposed");
  expect_close(polar(a.mT().contiguous(), options), expected.mT(), tolerance(a), "tall");
  const auto sliced = at::cat({a, a}, 1).slice(1, 50, 100);
  expect_close(polar(sliced, options), expected, tolerance(a), "sliced");
  EXPECT_TRUE(at::equal(a, before)) << "the input was changed";
}

TEST_P(PolarMethod, HalfPrecisionIsComputedInFloat) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const auto a = gaussian({40, 60}, 14).to(dtype);
    const auto x = polar(a, options);
    EXPECT_EQ(x.scalar_type(), dtype);
    EXPECT_TRUE(at::equal(x, polar(a.to(at::kFloat), options).to(dtype))) << dtype;
  }
}

// Newton-Schulz in double precision from its definition, and a tolerance for rounding.
struct PlainIteration {
  at::Tensor x;
  double tolerance;

  PlainIteration(const at::Tensor& a, const Coefficients& rows, int64_t steps) {
    x = a.size(0) > a.size(1) ? a.to(at::kDouble).mT() : a.to(at::kDouble);
    x = x / x.norm();
    double growth = 1;  // of an error in a small singular value: the derivative at 0
    for (int64_t i = 0; i < steps; ++i) {
      const auto& [p, q, r] = rows[std::min<size_t>(i, rows.size() - 1)];
      const auto s = at::matmul(x, x.mT());
      x = p * x + at::matmul(q * s + r * at::matmul(s, s), x);
      growth = std::max(growth, p);
    }
    if (a.size(0) > a.size(1)) x = x.mT();
    // After about five steps all singular values are near 1, and their errors no longer grow.
    const int64_t growing = std::min<int64_t>(steps, 5);
    tolerance = rounding(a.scalar_type(), std::max(a.size(0), a.size(1)), growing, growth);
  }
};

class PolarNewtonSchulz : public ::testing::TestWithParam<std::string> {
 protected:
  static Coefficients rows() {
    if (GetParam() == "cubic") return {{1.5, -0.5, 0}};
    if (GetParam() == "two_rows") return {{2, -1.5, 0.5}, {1.5, -0.5, 0}};
    return named_coefficients(GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Polar, PolarNewtonSchulz,
                         ::testing::Values("muon", "polar_express", "cans", "cubic", "two_rows"),
                         [](const auto& info) { return info.param; });

TEST_P(PolarNewtonSchulz, MatchesPlainIteration) {
  PolarOptions options{.method = "newton_schulz"};
  options.ns_coefficients = rows();
  for (const int64_t steps : {1, 2, 3, 5, 9}) {
    options.ns_steps = steps;
    for (const auto& [m, n] : std::vector<Shape>{{30, 30}, {25, 36}, {20, 80}, {10, 200}, {90, 20}}) {
      for (const auto dtype : {at::kFloat, at::kDouble}) {
        const auto a = gaussian({m, n}, m, dtype);
        const PlainIteration plain(a, rows(), steps);
        expect_close(polar(a, options), plain.x, plain.tolerance,
                     c10::str(steps, " steps, ", m, " x ", n, ", ", dtype));
      }
    }
  }
}

TEST(Polar, CoefficientsReachPublishedRange) {
  // The range of the singular values after five steps from [1e-3, 1] in exact arithmetic.
  const auto range = [](const std::string& name) {
    double low = 1e9, high = 0;
    const auto rows = coefficient_schedule(named_coefficients(name), 5);
    for (double start = 1e-3; start <= 1; start *= 1.0005) {
      double x = start;
      for (const auto& [a, b, c] : rows) x *= a + x * x * (b + c * x * x);
      low = std::min(low, x);
      high = std::max(high, x);
    }
    return std::pair{low, high};
  };
  EXPECT_NEAR(range("muon").first, 0.471, 2e-3);
  EXPECT_NEAR(range("muon").second, 1.202, 2e-3);
  EXPECT_NEAR(range("cans").first, 0.884, 2e-3);
  EXPECT_NEAR(range("cans").second, 1.120, 2e-3);
  EXPECT_GT(range("polar_express").first, 0.80);  // 0.876 without the safety factor
  EXPECT_LT(range("polar_express").second, 1.20);
  EXPECT_NEAR(largest_value(coefficient_schedule(named_coefficients("muon"), 5)), 1.2022, 1e-3);
}

TEST_P(PolarMethod, FiniteInputGivesFiniteResult) {
  std::mt19937_64 random(15);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t m = 1 + random() % 12, n = 1 + random() % 12;
    auto a = gaussian({m, n}, trial);
    switch (trial % 6) {
      case 0:
        a.mul_(at::pow(10.0, gaussian({m, n}, trial + 1).mul(12).clamp(-37, 37)));
        break;  // elements of very different magnitudes
      case 1: a.fill_(std::numeric_limits<float>::max()); break;
      case 2: a.fill_(std::numeric_limits<float>::denorm_min()); break;
      case 3: a.slice(0, 1).zero_(); break;
      case 4: a = at::matmul(a.narrow(1, 0, 1), a.narrow(0, 0, 1)) * 1e-20; break;
      default: a.sign_(); break;
    }
    const auto x = polar(a, options);
    ASSERT_TRUE(at::isfinite(x).all().item<bool>()) << "trial " << trial;
    ASSERT_LE(spectral_norm(x), 1.25) << "trial " << trial;
  }
}

TEST(Polar, ThrowsForBadInput) {
  const auto a = gaussian({4, 5}, 16);
  expect_error<c10::TypeError>([&] { polar(a.to(at::kLong)); },
                               "expected a real floating-point tensor, got Long");
  expect_error<c10::TypeError>([&] { polar(a.to(at::kComplexFloat)); }, "got ComplexFloat");
  expect_error<c10::ValueError>([&] { polar(a[0]); }, "expected (..., m, n), got shape [5]");
  expect_error<c10::ValueError>([&] { polar(a, {.method = "qr"}); }, "got 'qr'");
  expect_error<c10::ValueError>([&] { named_coefficients("fast"); }, "got 'fast'");
  PolarOptions options{.method = "newton_schulz"};
  options.ns_steps = 0;
  expect_error<c10::ValueError>([&] { polar(a, options); }, "ns_steps must be at least 1, got 0");
  options = {.method = "newton_schulz"};
  options.ns_coefficients = Coefficients{};
  expect_error<c10::ValueError>([&] { polar(a, options); }, "at least one row");
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    auto broken = a.clone();
    broken[2][3] = bad;
    for (const auto* name : {"halley", "newton_schulz", "svd"}) {
      expect_error<c10::ValueError>([&] { polar(broken, {.method = name}); }, "expected a finite matrix");
    }
  }
}

// Regression: inside a parallel region MKL waited forever for threads, or computed wrong eigenvalues. See
// mkl_single_thread_guard.h.
TEST(Polar, WorksInsideParallelRegion) {
  const ThreadGuard threads(2);
  const auto wide = gaussian({2, 400, 900}, 5);
  const auto square = gaussian({2, 700, 700}, 6);
  std::vector<at::Tensor> factors(2);
  std::vector<double> norms(2);
  at::parallel_for(0, 2, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      factors[i] = polar(wide[i], {.method = "svd"});
      NuclearNormEstimator estimate(square[i]);
      while (estimate.refine()) {
      }
      norms[i] = estimate.heuristic_bounds().lower;
    }
  });
  for (int64_t i = 0; i < 2; ++i) {
    expect_close(factors[i], polar(wide[i], {.method = "svd"}), polar_rounding(wide[i], "svd"));
    const double norm = at::linalg_svdvals(square[i].to(at::kDouble)).sum().item<double>();
    EXPECT_NEAR(norms[i], norm, rounding(at::kDouble, 700) * testing::condition_number(square[i]) * norm);
  }
}

// Small matrices are computed on one thread.
TEST(Polar, KeepsTheNumberOfThreads) {
  if (!MKL_Get_Max_Threads) GTEST_SKIP() << "LAPACK is not MKL";
  const ThreadGuard threads(2);
  const int before = MKL_Get_Max_Threads();
  polar(gaussian({20, 30}, 7));
  EXPECT_EQ(MKL_Get_Max_Threads(), before);
}

}  // namespace
}  // namespace tensorion
