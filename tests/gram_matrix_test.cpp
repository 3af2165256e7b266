#include "tensorion/polar/gram_matrix.h"

#include "tensorion/unfolding.h"
#include "tests/support.h"

namespace tensorion {
namespace {

using testing::expect_close;
using testing::gaussian;
using testing::rounding;
using testing::with_spectrum;

TEST(GramMatrix, BoundsEigenvalueAndNuclearNorm) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t m = 1 + random() % 20;
    const auto spectrum = gaussian({m}, trial, at::kDouble).abs().pow(1 + trial % 4);
    const auto a = with_spectrum(spectrum, m, m + trial % 7, trial, at::kDouble);
    SCOPED_TRACE(trial);
    const GramMatrix gram(a);
    EXPECT_GE(gram.lambda, spectrum.max().square().item<double>());
    EXPECT_GE(gram.nuclear_upper, spectrum.sum().item<double>());
    EXPECT_LE(gram.nuclear_upper, std::sqrt(m) * a.norm().item<double>() * (1 + 1e-5))
        << "no better than Cauchy-Schwarz";
  }
}

// Regression: the bound ignored small singular values, which rounding hides in the Gram matrix.
TEST(GramMatrix, UpperBoundHoldsNearRankOneInSinglePrecision) {
  for (int trial = 0; trial < 500; ++trial) {
    const int64_t m = 2 + trial % 5;
    const auto spectrum = at::full({m}, std::pow(10.0, -2 - trial % 4), at::kDouble);
    spectrum[0] = 1;
    const auto a = with_spectrum(spectrum, m, m + trial % 7, trial, at::kFloat);
    const double norm = at::linalg_svdvals(a.to(at::kDouble)).sum().item<double>();
    EXPECT_GE(GramMatrix(a).nuclear_upper, norm) << trial;
  }
}

// Regression: the errors of the diagonal were estimated from the other elements, and a bound was too low by
// 1e-6.
TEST(GramMatrix, RoundingIncludesDiagonal) {
  auto a = at::zeros({300, 300});
  a.diagonal().fill_(0.3);
  a += 0.001;
  const auto wide = a.to(at::kDouble);
  const auto error = GramMatrix(a).matrix.tril() - at::mm(wide, wide.mT()).tril();
  const double squares =
      2 * error.square().sum().item<double>() - error.diagonal().square().sum().item<double>();
  EXPECT_GE(GramMatrix(a).rounding, std::sqrt(squares));
}

TEST(GramMatrix, PartialTraceEqualsGramMatrixOfSmallerUnfolding) {
  const std::vector<int64_t> shape{4, 3, 2, 5, 3};
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const auto x = gaussian(shape, 1, dtype);
    const GramMatrix whole(unfold(x, {0, 2, 4}));
    for (const Modes& part : std::vector<Modes>{{0}, {2}, {4}, {0, 2}, {0, 4}, {2, 4}}) {
      SCOPED_TRACE(c10::str(dtype, at::IntArrayRef(part)));
      const double tolerance = rounding(dtype, x.numel());
      std::vector<bool> kept;
      for (const int64_t mode : {0, 2, 4}) {
        kept.push_back(std::find(part.begin(), part.end(), mode) != part.end());
      }
      const auto traced = whole.partial_trace({4, 2, 3}, kept);
      const GramMatrix expected(unfold(x, part));
      expect_close(traced.matrix.tril(), expected.matrix.tril(), tolerance);
      EXPECT_NEAR(traced.trace, expected.trace, tolerance * expected.trace);
      EXPECT_NEAR(traced.squares, expected.squares, tolerance * expected.squares);
      // The bounds differ by more than rounding, because they allow for different estimates of it.
      EXPECT_NEAR(traced.nuclear_upper, expected.nuclear_upper, 1e-4 * expected.nuclear_upper);
      EXPECT_GE(traced.rounding, whole.rounding);
    }
  }
}

TEST(GramMatrix, InverseAndDeterminantOfShiftedMatrices) {
  const auto a = gaussian({40, 60}, 3, at::kDouble);
  const GramMatrix gram(a);
  const auto shifted = at::mm(a, a.mT()) + 0.01 * gram.lambda * at::eye(40, at::kDouble);
  const auto inverse = gram.inverse(0.01);
  ASSERT_TRUE(inverse.has_value());
  const double condition = testing::condition_number(shifted);
  expect_close(inverse->lower.tril(), at::linalg_inv(shifted).tril(), rounding(at::kDouble, 60) * condition);
  const double log_det =
      std::get<1>(at::linalg_slogdet(shifted)).item<double>() - 40 * std::log(0.01 * gram.lambda);
  const double tolerance = rounding(at::kDouble, 40 * 60) * condition;
  EXPECT_NEAR(inverse->log_det, log_det, tolerance);
  EXPECT_NEAR(gram.log_det(0.01).value(), log_det, tolerance);
  EXPECT_FALSE(gram.inverse(-2).has_value());
  EXPECT_FALSE(gram.log_det(-2).has_value());
}

}  // namespace
}  // namespace tensorion
