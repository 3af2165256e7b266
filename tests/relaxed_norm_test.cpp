#include <algorithm>

#include "tensorion/norms.h"
#include "tensorion/unfolding.h"
#include "tests/tensors.h"

namespace tensorion {
namespace {

using testing::certified_rounding;
using testing::expect_error;
using testing::gaussian;
using testing::rounding;

constexpr int64_t kIterations = 10000;  // the maximum; rounding errors add up over iterations

// Expects that the bounds hold for `norm` and are as tight as the tolerance requires.
void expect_bounds(const NormBounds& bounds, double norm, double tol, const std::string& what) {
  // The rounding error of the reference. No tensor in these tests has more than 1000 elements.
  const double rounded = rounding(at::kDouble, 1000) * norm;
  EXPECT_LE(bounds.lower, norm + rounded) << what;
  EXPECT_GE(bounds.upper, norm - rounded) << what;
  EXPECT_LE(bounds.upper - bounds.lower, 1.0001 * tol * bounds.upper) << what;
}

double smallest_unfolding_norm(const at::Tensor& x) {
  double smallest = INFINITY;
  for (const auto& modes : unfoldings(x.sizes())) {
    smallest = std::min(smallest, at::linalg_svdvals(unfold(x, modes))[0].item<double>());
  }
  return smallest;
}

at::Tensor folded_polar(const at::Tensor& x, const Modes& modes) {
  const Unfolding unfolding(x.sizes(), modes);
  const auto [u, s, vh] = at::linalg_svd(unfolding.unfold(x), /*full_matrices=*/false);
  return unfolding.fold(at::matmul(u, vh));
}

TEST(RelaxedNorm, MatchesSpectralNormOfMatricesAndNormOfVectors) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{6, 9}, {1, 9, 6}, {5, 1, 1, 4}}) {
    const auto x = gaussian(shape, 1, at::kDouble);
    const double norm = at::linalg_svdvals(x.squeeze())[0].item<double>();
    expect_bounds(relaxed_norm(x), norm, 1e-12, c10::str(at::IntArrayRef(shape)));
  }
  for (const auto& shape : std::vector<std::vector<int64_t>>{{6}, {1, 1, 9}, {1, 1}, {}}) {
    const auto x = gaussian(shape, 2, at::kDouble);
    expect_bounds(relaxed_norm(x), x.norm().item<double>(), 1e-12, c10::str(at::IntArrayRef(shape)));
  }
  for (const auto& shape : std::vector<std::vector<int64_t>>{{3}, {3, 4}, {3, 4, 5}, {0}, {2, 0, 3, 3}}) {
    const auto bounds = relaxed_norm(at::zeros(shape));
    EXPECT_EQ(bounds.lower, 0);
    EXPECT_EQ(bounds.upper, 0);
  }
}

TEST(RelaxedNorm, KnownValues) {
  for (const double tol : {1e-2, 1e-3, 1e-5, 1e-7}) {
    // The optimal m has the symmetries of x. So it is a multiple of the W state, for which <m, x> = 3 and all
    // nuclear norms are 1 + sqrt(2).
    expect_bounds(relaxed_norm(testing::w_state(), tol), 3 / (1 + std::sqrt(2.0)), tol, "W state");
    expect_bounds(relaxed_norm(testing::determinant(), tol), std::sqrt(2.0), tol, "determinant");
    expect_bounds(relaxed_norm(testing::matrix_product(2), tol), std::sqrt(2.0), tol, "2 x 2 product");
    expect_bounds(relaxed_norm(testing::matrix_product(3), tol), std::sqrt(3.0), tol, "3 x 3 product");
    const auto odeco = testing::orthogonally_decomposable({3, -2, 1, 0.5}, {4, 5, 6}, 1);
    expect_bounds(relaxed_norm(odeco, tol), 3, tol, "orthogonally decomposable");
    const auto rank_one = testing::outer({gaussian({3}, 1, at::kDouble), gaussian({4}, 2, at::kDouble),
                                          gaussian({5}, 3, at::kDouble), gaussian({2}, 4, at::kDouble)});
    expect_bounds(relaxed_norm(rank_one, tol), rank_one.norm().item<double>(), tol, "rank one");
  }
}

// x = a W + b e_1 e_1 e_1 is invariant under permutations of the modes, and under a sign change of both e_1
// and x. So is its optimal m = alpha W + beta e_1 e_1 e_1. Every unfolding of m has the orthogonal rows (0
// alpha alpha 0) and (alpha 0 0 beta), so the reference is a search over one angle.
TEST(RelaxedNorm, MatchesSearchOverSymmetricDualTensors) {
  for (const auto& [a, b] :
       std::vector<std::pair<double, double>>{{1, 0.3}, {1, 1}, {1, -2}, {1, 4}, {-0.1, 1}}) {
    double norm = 0;
    const int64_t steps = 200000;
    for (int64_t i = 0; i < steps; ++i) {
      const double angle = 2 * M_PI * static_cast<double>(i) / steps;
      const double alpha = std::cos(angle), beta = std::sin(angle);
      norm = std::max(norm, (3 * a * alpha + b * beta) / (std::sqrt(2.0) * std::abs(alpha) + 1));
    }
    const auto bounds = relaxed_norm(testing::w_state(a, b), 1e-6);
    EXPECT_NEAR(bounds.lower, norm, 2e-6 * norm) << a << " " << b;
    EXPECT_NEAR(bounds.upper, norm, 2e-6 * norm) << a << " " << b;
  }
}

// The reference is a subgradient method for the dual problem min { ||m||_Sigma^dagger : <m, x> = 1 }, whose
// value is 1 / ||x||_Sigma.
TEST(RelaxedNorm, MatchesSubgradientMethod) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{2, 3, 4}, {3, 3, 3}, {2, 2, 2, 2}}) {
    auto x = gaussian(shape, 1, at::kDouble);
    x /= x.norm();
    const auto bounds = relaxed_norm(x, 1e-5);
    auto m = x.clone();
    double best = INFINITY;
    for (int step = 0; step < 1000; ++step) {
      double value = 0;
      at::Tensor gradient;
      for (const auto& modes : unfoldings(shape)) {
        const double nuclear = at::linalg_svdvals(unfold(m, modes)).sum().item<double>();
        if (nuclear > value) value = nuclear, gradient = folded_polar(m, modes);
      }
      best = std::min(best, value);
      const auto direction = gradient - (gradient * x).sum() * x;
      m = m - direction * ((value - 1 / bounds.upper) / direction.square().sum());
    }
    EXPECT_GE(1 / best, bounds.lower * (1 - 2e-3)) << at::IntArrayRef(shape);
    EXPECT_LE(1 / best, bounds.upper) << at::IntArrayRef(shape);
  }
}

TEST(RelaxedNorm, MeetsTheToleranceOnGaussianTensorsAndThePapersBound) {
  uint64_t seed = 0;
  for (const auto& shape : std::vector<std::vector<int64_t>>{
           {2, 2, 2}, {4, 5, 6}, {2, 20, 3}, {8, 8, 3, 3}, {16, 16, 3, 3}, {3, 3, 3, 3, 3}}) {
    const auto x = gaussian(shape, ++seed, at::kDouble);
    const auto what = c10::str(at::IntArrayRef(shape));
    const auto bounds = relaxed_norm(x);
    EXPECT_LE(bounds.upper - bounds.lower, 1.0001e-3 * bounds.upper) << what;
    EXPECT_LE(bounds.upper, smallest_unfolding_norm(x) * (1 + rounding(at::kDouble, x.numel()))) << what;
    // Duality holds for all m. These are near the optimal one and far from it.
    for (int i = 0; i < 5; ++i) {
      const auto m = x + 0.5 * i * gaussian(shape, 100 + i, at::kDouble);
      EXPECT_LE((m * x).sum().item<double>(), dual_norm(m).item<double>() * bounds.upper) << what;
    }
    // A norm is even, and the triangle inequality holds.
    const auto y = gaussian(shape, ++seed, at::kDouble);
    EXPECT_GE(bounds.upper + relaxed_norm(y).upper, relaxed_norm(x + y).lower) << what;
    EXPECT_NEAR(relaxed_norm(-x).upper, bounds.upper,
                rounding(at::kDouble, x.numel(), kIterations) * bounds.upper)
        << what;
  }
}

TEST(RelaxedNorm, MeetsATightToleranceOnSmallTensors) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{2, 2, 2}, {3, 3, 3}, {4, 5, 6}, {4, 4, 2, 2}}) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      const auto bounds = relaxed_norm(gaussian(shape, seed, at::kDouble), 1e-5);
      EXPECT_LE(bounds.upper - bounds.lower, 1.0001e-5 * bounds.upper) << at::IntArrayRef(shape);
    }
  }
}

// This tolerance cannot be reached, because of rounding or the number of iterations. The bounds must still
// hold.
TEST(RelaxedNorm, BoundsHoldIfToleranceIsNotReached) {
  const auto x = testing::w_state();
  const double norm = 3 / (1 + std::sqrt(2.0));
  const auto bounds = relaxed_norm(x, 1e-16);
  EXPECT_LE(bounds.lower, norm);
  EXPECT_GE(bounds.upper, norm);
  EXPECT_LE(bounds.upper - bounds.lower, rounding(at::kDouble, x.numel(), kIterations) * norm);
}

// Solutions of the LMO lie on the unit sphere. Polar factors of other unfoldings lie in the unit ball.
TEST(RelaxedNorm, IsOneForSolutionsOfTheLmo) {
  const auto g = gaussian({8, 8, 3, 3}, 1, at::kDouble);
  const double largest = dual_norm(g).item<double>();
  for (const auto& modes : unfoldings(g.sizes())) {
    const auto x = folded_polar(g, modes);
    const auto bounds = relaxed_norm(x);
    EXPECT_LE(bounds.upper, 1 + certified_rounding(g)) << at::IntArrayRef(modes);
    const bool is_solution =
        tensorion::nuclear_norm(g, modes).item<double>() >= largest * (1 - rounding(at::kDouble, g.numel()));
    EXPECT_GE(bounds.lower, is_solution ? 1 - 1.0001e-3 : 0) << at::IntArrayRef(modes);
  }
}

TEST(RelaxedNorm, IsIndependentOfDtypeAndLayoutAndScalesExactly) {
  const auto x = gaussian({4, 3, 3, 2}, 1);
  const auto expected = relaxed_norm(x);
  auto all = testing::in_other_layouts(x);
  all.push_back(x.to(at::kDouble));
  for (const auto& same : all) {
    const double tolerance = rounding(at::kDouble, x.numel(), kIterations);
    EXPECT_NEAR(relaxed_norm(same).lower, expected.lower, tolerance) << same.strides();
    EXPECT_NEAR(relaxed_norm(same).upper, expected.upper, tolerance) << same.strides();
  }
  for (const int exponent : {-100, -50, 50, 100}) {  // about 1e-30 to 1e30
    const double scale = std::ldexp(1.0, exponent);
    EXPECT_DOUBLE_EQ(relaxed_norm(x * scale).lower, expected.lower * scale);
    EXPECT_DOUBLE_EQ(relaxed_norm(x * scale).upper, expected.upper * scale);
  }
  for (const double scale : {5e-324, 1e-300, 1e300}) {  // the smallest positive double first
    const auto bounds = relaxed_norm(at::full({2, 2, 4}, scale, at::kDouble));
    EXPECT_NEAR(bounds.lower, 4 * scale, rounding(at::kDouble, 16, 10) * 4 * scale) << scale;
    EXPECT_NEAR(bounds.upper, 4 * scale, rounding(at::kDouble, 16, 10) * 4 * scale) << scale;
  }
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const auto low = x.to(dtype);
    EXPECT_DOUBLE_EQ(relaxed_norm(low).upper, relaxed_norm(low.to(at::kDouble)).upper);
  }
}

TEST(RelaxedNorm, ThrowsForBadTolerance) {
  const auto x = gaussian({2, 2, 2}, 1);
  for (const double tol : {0.0, 1.0, -1e-3, 2.0, static_cast<double>(NAN)}) {
    expect_error<c10::ValueError>([&] { relaxed_norm(x, tol); },
                                  "[tensorion.relaxed_norm] tol must be in (0, 1), got " + c10::str(tol));
  }
}

}  // namespace
}  // namespace tensorion
