#include "tensorion/lmo.h"

#include "tensorion/lmo/direction.h"
#include "tensorion/norms.h"
#include "tests/tensors.h"

namespace tensorion {
namespace {

using testing::expect_close;
using testing::expect_error;
using testing::gaussian;
using testing::polar_rounding;
using testing::power_law;
using testing::rounding;
using testing::ThreadGuard;

// Returns the nuclear norm of every unfolding, by SVD in double precision, in the order of `unfoldings`.
std::vector<double> nuclear_norms(const at::Tensor& x) {
  std::vector<double> norms;
  for (const auto& modes : unfoldings(x.sizes())) {
    norms.push_back(at::linalg_svdvals(unfold(x.to(at::kDouble), modes)).sum().item<double>());
  }
  return norms;
}

// Returns a tensor whose spectrum decays in every mode, like that of momenta.
at::Tensor decaying(at::IntArrayRef shape, uint64_t seed, double exponent) {
  auto x = gaussian(shape, seed, at::kDouble);
  for (int64_t mode = 0; mode < x.dim(); ++mode) {
    std::vector<int64_t> sizes(x.dim(), 1);
    sizes[mode] = x.size(mode);
    x = x * power_law(x.size(mode), exponent).reshape(sizes);
    const auto mix = gaussian({x.size(mode), x.size(mode)}, seed + mode + 1, at::kDouble);
    x = at::tensordot(x, mix, {mode}, {0}).movedim(-1, mode);
  }
  return x.to(at::kFloat).contiguous();
}

TEST(Lmo, OnlineMatchesBruteForce) {
  std::mt19937_64 random(1);
  int64_t solved = 0, all = 0;
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<int64_t> shape(2 + trial % 4);
    for (auto& size : shape) size = 1 + random() % 6;
    if (effective_order(shape) < 2) continue;
    const auto x = trial % 2 ? gaussian(shape, trial) : decaying(shape, trial, 1.0);
    const auto norms = nuclear_norms(x);
    const auto best = std::max_element(norms.begin(), norms.end());
    const auto result = lmo(x);
    const auto sets = unfoldings(shape);
    const auto found = std::find(sets.begin(), sets.end(), result.modes) - sets.begin();
    const double tolerance = rounding(at::kFloat, x.numel());
    SCOPED_TRACE(c10::str("trial ", trial, ", ", at::IntArrayRef(shape)));
    EXPECT_GE(norms[found], *best * (1 - tolerance));
    EXPECT_LE(result.value, *best * (1 + tolerance));
    EXPECT_GE(result.value, *best * 0.97);
    EXPECT_GE(result.upper, *best * (1 - tolerance));
    EXPECT_LE(result.upper, *best * 1.03);
    solved += result.solved;
    all += static_cast<int64_t>(norms.size());
  }
  EXPECT_LT(solved, all / 2) << "bounds should rule out most unfoldings";
}

class LmoWithThreads : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Lmo, LmoWithThreads, ::testing::Values(1, 2, 4, 8));

// These tensors are large enough for rounding to matter, and have unfoldings whose rows are a subset of those
// of others.
TEST_P(LmoWithThreads, OnlineMatchesBruteForceOnKernels) {
  const ThreadGuard threads(GetParam());
  const std::vector<std::vector<int64_t>> shapes{{48, 48, 3, 3},    {64, 32, 3, 3},  {30, 40, 5, 2},
                                                 {20, 20, 3, 3, 3}, {16, 12, 10, 8}, {60, 3, 7, 7}};
  for (const auto& shape : shapes) {
    for (const double exponent : {0.0, 0.7, 1.5}) {
      SCOPED_TRACE(c10::str(at::IntArrayRef(shape), ", exponent ", exponent));
      const auto x = decaying(shape, 11, exponent);
      const auto norms = nuclear_norms(x);
      const double best = *std::max_element(norms.begin(), norms.end());
      const auto result = lmo(x);
      const auto sets = unfoldings(shape);
      const auto found = std::find(sets.begin(), sets.end(), result.modes) - sets.begin();
      // The last decision is made by eigenvalues of Gram matrices in double precision.
      EXPECT_GE(norms[found], best * (1 - std::sqrt(testing::epsilon(at::kDouble))));
      EXPECT_LE(result.value, best);
      EXPECT_GE(result.upper, best);
      // Unfoldings that were ruled out by heuristic bounds contribute their certified bounds to `upper`.
      // These are a few percent larger if single precision does not resolve a smaller shift.
      EXPECT_LE(result.upper, best * 1.06);
      const double attained = (x * result.x).sum(at::kDouble).item<double>();
      EXPECT_LE(result.value, attained);
      EXPECT_GE(result.value, attained - 5e-3 * best);
    }
  }
}

TEST(Lmo, OnlineOnKernelsSolvesFewUnfoldings) {
  const auto kernel = decaying({32, 24, 3, 3}, 3, 0.7);
  const auto norms = nuclear_norms(kernel);
  const auto result = lmo(kernel);
  const auto sets = unfoldings(kernel.sizes());
  EXPECT_EQ(result.modes, sets[std::max_element(norms.begin(), norms.end()) - norms.begin()]);
  EXPECT_LE(result.solved, 3);
}

struct Kernel {
  std::vector<int64_t> shape;
  double exponent;  // of the decay along the modes; negative: a constant plus noise
};

class DirectionOfKernel : public ::testing::TestWithParam<Kernel> {};

INSTANTIATE_TEST_SUITE_P(Lmo, DirectionOfKernel,
                         ::testing::Values(Kernel{{4, 4, 4}, 0.0}, Kernel{{5, 5, 5, 5}, 1.0},
                                           Kernel{{16, 16, 3, 3}, 0.0}, Kernel{{16, 16, 3, 3}, 1.5},
                                           Kernel{{48, 48, 3, 3}, 0.0}, Kernel{{48, 48, 3, 3}, 0.7},
                                           Kernel{{48, 48, 3, 3}, 1.5}, Kernel{{48, 48, 3, 3}, -1.0},
                                           Kernel{{64, 32, 3, 3}, 0.7}, Kernel{{20, 20, 3, 3, 3}, 0.0},
                                           Kernel{{16, 12, 10, 8}, 0.7}, Kernel{{12, 12, 12, 12}, -1.0},
                                           Kernel{{128, 128, 3, 3}, 0.0}, Kernel{{128, 128, 3, 3}, 0.7}));

// A step compares nearly equal unfoldings by estimates. It may take the second best only if it loses less
// than a thousandth. By brute force, the loss is far smaller.
TEST_P(DirectionOfKernel, OnlineChoiceLosesNearlyNothing) {
  const auto& [shape, exponent] = GetParam();
  for (uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(seed);
    const auto x = exponent < 0 ? 1 + 1e-3 * gaussian(shape, seed) : decaying(shape, 17 * seed, exponent);
    const auto norms = nuclear_norms(x);
    const auto chosen = lmo_direction(x, "online", {}).unfolding;
    const double found = norms[unfolding_index(chosen)];
    EXPECT_GE(found, *std::max_element(norms.begin(), norms.end()) * (1 - 1e-4));
  }
}

// Regression: MKL computes wrong eigenvalues in a parallel region, so the wrong one of two close unfoldings
// was chosen.
TEST_P(LmoWithThreads, OnlineSeparatesCloseUnfoldingsInParallelRegion) {
  const ThreadGuard threads(GetParam());
  const auto x = gaussian({100, 100, 3, 3}, 1);
  const auto norms = nuclear_norms(x);
  const auto best = std::max_element(norms.begin(), norms.end()) - norms.begin();
  ASSERT_LT(std::abs(norms[5] / norms[6] - 1), 1e-3) << "the example should be close";
  std::vector<Modes> found(GetParam());
  at::parallel_for(0, GetParam(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) found[i] = lmo(x).modes;
  });
  for (const auto& modes : found) EXPECT_EQ(modes, unfoldings(x.sizes())[best]);
}

TEST(Lmo, ResultAttainsItsValue) {
  const auto x = decaying({8, 6, 3, 3}, 4, 0.5);
  for (const auto& strategy : {UnfoldingStrategy("balanced"), UnfoldingStrategy("online"),
                               UnfoldingStrategy(Modes{1}), UnfoldingStrategy(Modes{1, 3})}) {
    for (const auto* name : {"halley", "svd", "newton_schulz"}) {
      SCOPED_TRACE(strategy.str() + " " + name);
      const double tolerance = rounding(at::kFloat, x.numel());
      const auto result = lmo(x, strategy, {.method = name});
      ASSERT_EQ(result.x.sizes(), x.sizes());
      const double attained = (x * result.x).sum(at::kDouble).item<double>();
      const double norm = at::linalg_svdvals(unfold(result.x, result.modes)).max().item<double>();
      EXPECT_LE(norm, std::string(name) == "newton_schulz" ? 1.21 : 1.01);
      EXPECT_NEAR(result.value, attained, 0.21 * attained);
      EXPECT_LE(result.value, attained * (1 + tolerance));
      const auto norms = nuclear_norms(x);
      EXPECT_GE(result.upper, *std::max_element(norms.begin(), norms.end()) * (1 - tolerance));
    }
  }
}

// Proposition 4.2: the solution attains the dual norm and lies in the unit ball of the relaxed norm.
TEST(Lmo, OnlineResultIsOptimalInRelaxedUnitBall) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{4, 5, 3}, {5, 4, 3, 3}, {2, 3, 2, 3, 2}}) {
    for (const auto& x : {gaussian(shape, 10, at::kDouble), decaying(shape, 11, 1.0).to(at::kDouble)}) {
      SCOPED_TRACE(at::IntArrayRef(shape));
      const double tolerance = rounding(at::kDouble, x.numel());
      const auto result = lmo(x, "online", {.method = "svd"});
      EXPECT_NEAR(result.value, dual_norm(x).item<double>(), tolerance * result.value);
      EXPECT_LE(relaxed_norm(result.x).upper, 1 + testing::certified_rounding(x));
      EXPECT_LE(spectral_norm(result.x, 8).upper, 1 + testing::certified_rounding(x));
    }
  }
}

TEST(Lmo, SvdGivesPolarFactorOfFixedUnfolding) {
  const auto x = gaussian({4, 5, 6}, 5, at::kDouble);
  for (const auto& modes : unfoldings(x.sizes())) {
    const auto [u, s, vh] = at::linalg_svd(unfold(x, modes), false);
    const auto result = lmo(x, modes, {.method = "svd"});
    EXPECT_EQ(result.modes, modes);
    EXPECT_NEAR(result.value, s.sum().item<double>(), rounding(at::kDouble, x.numel()) * result.value);
    expect_close(result.x, fold(at::matmul(u, vh), modes, x.sizes()), polar_rounding(unfold(x, modes), "svd"),
                 c10::str(at::IntArrayRef(modes)));
  }
}

TEST(Lmo, SingletonModesDoNotChangeTheResult) {
  const auto matrix = gaussian({7, 9}, 6);
  const auto expected = lmo(matrix, "balanced");
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{1, 7, 9}, {7, 1, 9}, {7, 9, 1}, {1, 7, 1, 9, 1}}) {
    for (const auto* strategy : {"balanced", "online"}) {
      const auto result = lmo(matrix.reshape(shape), strategy);
      SCOPED_TRACE(c10::str(at::IntArrayRef(shape), " ", strategy));
      expect_close(result.x.reshape({7, 9}), expected.x, polar_rounding(matrix));
      EXPECT_NEAR(result.value, expected.value, polar_rounding(matrix) * expected.value);
    }
  }
}

TEST(Lmo, VectorsAreNormalized) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{12}, {1, 12}, {12, 1, 1}, {1, 1}}) {
    const auto x = gaussian(shape, 7);
    for (const auto* strategy : {"balanced", "online"}) {
      const auto result = lmo(x, strategy);
      SCOPED_TRACE(c10::str(at::IntArrayRef(shape), " ", strategy));
      const double tolerance = polar_rounding(x.reshape({1, -1}));
      expect_close(result.x, x / x.norm(), tolerance);
      EXPECT_NEAR(result.value, x.norm().item<double>(), tolerance * x.norm().item<double>());
    }
  }
}

TEST(Lmo, TiesGoToTheFirstUnfolding) {
  // The tensor is symmetric, so all unfoldings have the same nuclear norm.
  auto x = at::zeros({3, 3, 3});
  for (int64_t i = 0; i < 3; ++i) x[i][i][i] = 1;
  EXPECT_EQ(lmo(x).modes, (Modes{0}));
}

TEST(Lmo, ZeroAndEmptyTensors) {
  for (const auto* strategy : {"balanced", "online"}) {
    SCOPED_TRACE(strategy);
    const auto zero = lmo(at::zeros({2, 3, 4}), strategy);
    EXPECT_TRUE(at::equal(zero.x, at::zeros({2, 3, 4})));
    EXPECT_EQ(zero.value, 0);
    EXPECT_EQ(zero.upper, 0);
    EXPECT_EQ(lmo(at::zeros({2, 0, 4}), strategy).x.sizes(), at::IntArrayRef({2, 0, 4}));
  }
}

TEST(Lmo, ScaleChangesOnlyTheValue) {
  const auto x = decaying({6, 5, 4}, 8, 1.0);
  const auto expected = lmo(x);
  for (const double scale : {1e-28, 1e-5, 1e28}) {
    const auto result = lmo(x * scale);
    SCOPED_TRACE(scale);
    EXPECT_EQ(result.modes, expected.modes);
    const double tolerance = polar_rounding(unfold(x, expected.modes));
    expect_close(result.x, expected.x, tolerance);
    EXPECT_NEAR(result.value / scale, expected.value, tolerance * expected.value);
  }
}

TEST(Lmo, ThrowsForBadInput) {
  const auto x = gaussian({2, 3, 4}, 9);
  expect_error<c10::ValueError>([&] { lmo(x, "best"); },
                                "unfolding must be 'balanced', 'online' or a set of modes, got 'best'");
  expect_error<c10::ValueError>([&] { lmo(x, Modes{3}); }, "mode must be in [0, 3), got 3");
  expect_error<c10::ValueError>([&] { lmo(x, "balanced", {.method = "qr"}); }, "got 'qr'");
  expect_error<c10::ValueError>([&] { lmo(at::scalar_tensor(2.0)); }, "got a scalar");
  expect_error<c10::TypeError>([&] { lmo(x.to(at::kInt)); }, "got Int");
  auto broken = x.clone();
  broken[0][0][0] = std::nan("");
  for (const auto* strategy : {"balanced", "online"}) {
    expect_error<c10::ValueError>([&] { lmo(broken, strategy); }, "finite");
  }
}

// Regression: a bound that rules out unfoldings underflowed to zero, so the certificate was wrong.
TEST(Lmo, ExtremeScales) {
  const auto x = decaying({3, 3, 4}, 1, 0.5).to(at::kDouble);
  for (const auto* strategy : {"online", "balanced"}) {
    const auto expected = lmo(x, strategy);
    for (const int exponent : {-900, -300, 300, 900}) {
      SCOPED_TRACE(c10::str(strategy, ", 2^", exponent));
      const auto result = lmo(x * std::ldexp(1.0, exponent), strategy);
      EXPECT_EQ(result.modes, expected.modes);
      EXPECT_NEAR(std::ldexp(result.value, -exponent), expected.value, 1e-6 * expected.value);
      EXPECT_NEAR(std::ldexp(result.upper, -exponent), expected.upper, 1e-6 * expected.upper);
    }
  }
}

// Regression: for rank one all bounds of all nuclear norms are equal. Rounding ruled out every unfolding.
TEST(Lmo, RankOneTensors) {
  for (uint64_t trial = 0; trial < 100; ++trial) {
    const auto a = gaussian({4}, trial), b = gaussian({3}, trial + 200), c = gaussian({5}, trial + 400);
    const auto x = a.view({4, 1, 1}) * b.view({1, 3, 1}) * c;
    const auto result = lmo(x, "online");
    const double norm = x.norm().item<double>();
    EXPECT_LE(result.value, norm) << trial;
    EXPECT_GE(result.value, norm * (1 - 1e-4)) << trial;
    EXPECT_NEAR(result.upper, norm, 1e-2 * norm) << trial;
    expect_close(result.x, x / norm, 1e-3);
  }
  EXPECT_NEAR(lmo(at::tensor({0.0f, 2.0f}).expand({2, 2, 2}), "online").value, 4, 1e-3);
}

TEST(Lmo, StrategyConvertsToTextAndBack) {
  EXPECT_EQ(UnfoldingStrategy("balanced").str(), "balanced");
  EXPECT_EQ(UnfoldingStrategy("online").str(), "online");
  EXPECT_EQ(UnfoldingStrategy(Modes{0}).str(), "(0,)");
  EXPECT_EQ(UnfoldingStrategy(Modes{0, 2}).str(), "(0, 2)");
  for (const UnfoldingStrategy& strategy : {UnfoldingStrategy("balanced"), UnfoldingStrategy("online"),
                                            UnfoldingStrategy(Modes{}), UnfoldingStrategy(Modes{4, 0, 17})}) {
    EXPECT_EQ(UnfoldingStrategy::parse(strategy.str()), strategy);
  }
  EXPECT_EQ(UnfoldingStrategy::parse("( 0,2 , 3,)"), UnfoldingStrategy(Modes{0, 2, 3}));
  for (const std::string text :
       {"(", "(0", "(0,", "(,)", "(0 2)", "(0)x", "(-1,)", "(1.5)", "(99999999999999999999)"}) {
    expect_error<c10::ValueError>([&] { UnfoldingStrategy::parse(text); },
                                  "expected modes such as '(0, 2)', got '" + text + "'");
  }
  // Regression: parsing recursed for every mode and overflowed the stack.
  std::string many = "(";
  for (int i = 0; i < 100'000; ++i) many += "0, ";
  EXPECT_EQ(UnfoldingStrategy::parse(many + ")"), UnfoldingStrategy(Modes(100'000, 0)));
}

}  // namespace
}  // namespace tensorion
