#include <algorithm>

#include "tensorion/norms.h"
#include "tensorion/unfolding.h"
#include "tests/tensors.h"

namespace tensorion {
namespace {

using testing::expect_error;
using testing::gaussian;
using testing::rounding;

constexpr double kConverged = 1e-12;    // relative accuracy of the power method, including rounding
constexpr int64_t kIterations = 10000;  // the maximum for the upper bound; rounding errors add up

// Expects lower <= norm <= upper, and that the power method has found `norm`.
void expect_found(const NormBounds& bounds, double norm, double tolerance, const std::string& what) {
  EXPECT_NEAR(bounds.lower, norm, tolerance * norm) << what;
  const double rounded = rounding(at::kDouble, 1000);  // no tensor in these tests has more elements
  EXPECT_LE(bounds.lower, norm * (1 + rounded)) << what;
  EXPECT_GE(bounds.upper, norm * (1 - rounded)) << what;
}

TEST(SpectralNorm, MatchesSpectralNormOfMatricesAndNormOfVectors) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{6, 9}, {1, 9, 6}, {5, 1, 1, 4}}) {
    const auto x = gaussian(shape, 1, at::kDouble);
    const double norm = at::linalg_svdvals(x.squeeze())[0].item<double>();
    const auto bounds = spectral_norm(x);
    expect_found(bounds, norm, kConverged, c10::str(at::IntArrayRef(shape)));
    EXPECT_NEAR(bounds.upper, norm, kConverged * norm);
  }
  const auto vector = gaussian({1, 7, 1}, 1, at::kDouble);
  expect_found(spectral_norm(vector), vector.norm().item<double>(), kConverged, "vector");
  expect_found(spectral_norm(at::scalar_tensor(-2.5, at::kDouble)), 2.5, kConverged, "scalar");
  for (const auto& shape : std::vector<std::vector<int64_t>>{{3, 4, 5}, {2, 0, 3}, {0}}) {
    const auto bounds = spectral_norm(at::zeros(shape));
    EXPECT_EQ(bounds.lower, 0);
    EXPECT_EQ(bounds.upper, 0);
  }
}

TEST(SpectralNorm, KnownValues) {
  expect_found(spectral_norm(testing::w_state() / std::sqrt(3.0)), 2.0 / 3, kConverged, "W state");
  expect_found(spectral_norm(testing::determinant()), 1, kConverged, "determinant");
  expect_found(spectral_norm(testing::matrix_product(2)), 1, kConverged, "2 x 2 product");
  expect_found(spectral_norm(testing::matrix_product(3)), 1, kConverged, "3 x 3 product");
  const auto odeco = testing::orthogonally_decomposable({1, -3, 2.5, 0.5}, {4, 5, 6}, 1);
  expect_found(spectral_norm(odeco), 3, kConverged, "orthogonally decomposable");
  EXPECT_LE(spectral_norm(odeco).upper, 3 * (1 + 1.0001e-4));
  const auto odeco5 = testing::orthogonally_decomposable({1, 2, -2}, {3, 3, 3, 3, 3}, 1);
  expect_found(spectral_norm(odeco5), 2, kConverged, "order 5");
  const auto rank_one = testing::outer({gaussian({3}, 1, at::kDouble), gaussian({4}, 2, at::kDouble),
                                        gaussian({5}, 3, at::kDouble), gaussian({2}, 4, at::kDouble)});
  const auto bounds = spectral_norm(rank_one);
  expect_found(bounds, rank_one.norm().item<double>(), kConverged, "rank one");
  EXPECT_NEAR(bounds.upper / bounds.lower, 1, 1.0001e-4);
}

// If a mode has size 2, the norm is the maximum of a matrix norm over one angle.
TEST(SpectralNorm, MatchesSearchOverOneAngle) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const auto x = gaussian({2, 4, 5}, seed, at::kDouble);
    const auto angles = at::arange(20000, at::kDouble) * (M_PI / 20000);
    const auto unit = at::stack({angles.cos(), angles.sin()}, 1);
    const double norm = at::linalg_svdvals(at::tensordot(unit, x, {1}, {0})).max().item<double>();
    const auto bounds = spectral_norm(x);
    EXPECT_NEAR(bounds.lower, norm, 1e-7 * norm) << seed;
    EXPECT_GE(bounds.upper, norm) << seed;
  }
}

TEST(SpectralNorm, LiesBetweenRankOneTensorsAndRelaxedNorm) {
  uint64_t seed = 0;
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{4, 5, 6}, {8, 8, 3, 3}, {3, 3, 3, 3, 3}, {2, 2, 2, 2, 2, 2}}) {
    const auto x = gaussian(shape, ++seed, at::kDouble);
    const auto what = c10::str(at::IntArrayRef(shape));
    const auto bounds = spectral_norm(x);
    const auto relaxed = relaxed_norm(x);
    EXPECT_LE(bounds.lower, relaxed.upper) << what;
    EXPECT_GE(bounds.upper, relaxed.lower) << what;
    EXPECT_LE(bounds.upper, relaxed.upper * (1 + 1e-3)) << what;
    EXPECT_LE(bounds.lower, bounds.upper) << what;
    for (int i = 0; i < 20; ++i) {
      std::vector<at::Tensor> vectors;
      for (const auto size : shape) {
        const auto u = gaussian({size}, ++seed, at::kDouble);
        vectors.push_back(u / u.norm());
      }
      EXPECT_LE((x * testing::outer(vectors)).sum().abs().item<double>(), bounds.lower) << what;
    }
    EXPECT_GE(bounds.lower, spectral_norm(x, 1).lower * (1 - 1e-9)) << what;
  }
}

TEST(SpectralNorm, IsDeterministicAndDoesNotUseGlobalGenerator) {
  const auto x = gaussian({4, 4, 3, 3}, 1);
  at::manual_seed(5);
  const auto expected = at::randn({4});
  at::manual_seed(5);
  const auto first = spectral_norm(x);
  EXPECT_TRUE(at::equal(at::randn({4}), expected));
  const auto second = spectral_norm(x);
  EXPECT_EQ(first.lower, second.lower);
  EXPECT_EQ(first.upper, second.upper);
}

TEST(SpectralNorm, IsIndependentOfDtypeAndLayoutAndScalesExactly) {
  const auto x = gaussian({4, 3, 3, 2}, 1);
  const auto expected = spectral_norm(x);
  auto all = testing::in_other_layouts(x);
  all.push_back(x.to(at::kDouble));
  for (const auto& same : all) {
    const double tolerance = rounding(at::kDouble, x.numel(), kIterations);
    EXPECT_NEAR(spectral_norm(same).lower, expected.lower, tolerance) << same.strides();
    EXPECT_NEAR(spectral_norm(same).upper, expected.upper, tolerance) << same.strides();
  }
  for (const int exponent : {-100, 100}) {  // about 1e-30 and 1e30
    const double scale = std::ldexp(1.0, exponent);
    EXPECT_DOUBLE_EQ(spectral_norm(x * scale).lower, expected.lower * scale);
    EXPECT_DOUBLE_EQ(spectral_norm(x * scale).upper, expected.upper * scale);
  }
  const auto half = x.to(at::kBFloat16);
  EXPECT_DOUBLE_EQ(spectral_norm(half).lower, spectral_norm(half.to(at::kDouble)).lower);
}

TEST(SpectralNorm, FromBelowIsALowerBound) {
  const auto matrix = gaussian({7, 1, 11}, 1, at::kDouble);
  const auto largest = at::linalg_svdvals(matrix.squeeze())[0].item<double>();
  EXPECT_NEAR(spectral_norm_from_below(matrix), largest, kConverged * largest);
  EXPECT_NEAR(spectral_norm_from_below(testing::matrix_product(3)), 1, 1e-4);
  EXPECT_LE(spectral_norm_from_below(testing::matrix_product(3)), 1);
  for (const auto& shape : std::vector<std::vector<int64_t>>{{3, 4, 5}, {2, 0, 3}, {0}}) {
    EXPECT_EQ(spectral_norm_from_below(at::zeros(shape)), 0);
  }
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const auto x = gaussian({6, 5, 3, 3}, seed, at::kDouble) * 1e30;
    const auto bounds = spectral_norm(x);
    EXPECT_LE(spectral_norm_from_below(x), bounds.lower * (1 + kConverged));
    EXPECT_GE(spectral_norm_from_below(x), bounds.lower * (1 - 1e-3));
  }
}

TEST(SpectralNorm, ThrowsForBadRestarts) {
  for (const int64_t restarts : {0, -1}) {
    expect_error<c10::ValueError>([&] { spectral_norm(gaussian({2, 2, 2}, 1), restarts); },
                                  "[tensorion.spectral_norm] restarts must be at least 1, got ");
    expect_error<c10::ValueError>([&] { spectral_norm_from_below(gaussian({2, 2, 2}, 1), restarts); },
                                  "[tensorion.spectral_norm_from_below] restarts must be at least 1, got ");
  }
}

// Regression: the start for a long mode decomposed the Gram matrix of that mode, 20000 x 20000 in this
// example.
TEST(SpectralNorm, TensorWithOneLongMode) {
  const auto x = testing::gaussian({2, 3, 20000}, 1, at::kDouble);
  // Represent the long mode in an orthonormal basis of its span. This does not change the norm.
  const auto short_x = std::get<1>(at::linalg_qr(unfold(x, {2}))).mT().reshape({2, 3, 6});
  const auto found = spectral_norm(x, 8), expected = spectral_norm(short_x, 8);
  EXPECT_NEAR(found.lower, expected.lower, 1e-6 * expected.lower);
  EXPECT_NEAR(found.upper, expected.upper, 1e-3 * expected.upper);
}

}  // namespace
}  // namespace tensorion
