#include "tensorion/polar/deflation.h"

#include "tensorion/polar/nuclear_norm_estimator.h"
#include "tensorion/polar/rational_filter.h"
#include "tests/support.h"

namespace tensorion {
namespace {

using testing::expect_close;
using testing::gaussian;
using testing::power_law;
using testing::rounding;
using testing::with_spectrum;

double exact_nuclear_norm(const at::Tensor& a) {
  return at::linalg_svdvals(a.to(at::kDouble)).sum().item<double>();
}

double inner_product(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) * b.to(at::kDouble)).sum().item<double>();
}

// Returns spectra for which a deflation helps: a power law, a few large values, and a double one.
std::vector<at::Tensor> spectra(int64_t m) {
  auto outliers = at::full({m}, 0.02, testing::options(at::kDouble));
  outliers.narrow(0, 0, 3).fill_(1);
  auto cluster = power_law(m, 0.8);
  cluster.narrow(0, 0, 2).fill_(1);
  return {power_law(m, 1), outliers, cluster};
}

class DeflationOf : public ::testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, DeflationOf, ::testing::Values(at::kFloat, at::kDouble),
                         [](const auto& info) { return c10::str(info.param); });

// With Q = I, undo() returns D itself, so that all results can be compared with products of D and A.
TEST_P(DeflationOf, MatrixNormAndInnerProduct) {
  const int64_t m = 544, n = 600;
  for (size_t i = 0; i < spectra(m).size(); ++i) {
    SCOPED_TRACE(i);
    const auto a = with_spectrum(spectra(m)[i], m, n, 7, GetParam());
    GramMatrix gram(a);
    const double lambda = gram.lambda;
    const auto deflation = Deflation::apply(gram);
    ASSERT_TRUE(deflation.has_value());
    auto d = at::eye(m, a.options());
    const double removed = deflation->undo(d);
    const auto reduced = at::mm(d.to(at::kDouble), a.to(at::kDouble));
    const auto rest = a.to(at::kDouble) - reduced;
    const auto error = gram.matrix.tril().to(at::kDouble) - at::mm(reduced, reduced.t()).tril();
    EXPECT_LE(std::sqrt(2.0) * error.norm().item<double>(), gram.rounding);
    EXPECT_LT(gram.lambda, lambda / 3);
    // An error of the Gram matrix changes a singular value sigma by up to its norm divided by sigma. At least
    // one in 20 of the values is removed.
    const double norm = exact_nuclear_norm(rest), tolerance = 400 * gram.rounding;
    EXPECT_GE(deflation->removed_norm(), norm);
    EXPECT_NEAR(deflation->removed_norm(), norm, tolerance);
    // X = Q D A = D A.
    EXPECT_LE(removed, inner_product(rest, reduced));
    EXPECT_NEAR(removed, inner_product(rest, reduced), tolerance);
    EXPECT_NEAR(at::linalg_matrix_norm(d.to(at::kDouble), 2).item<double>(), 1, rounding(GetParam(), m));
  }
}

TEST_P(DeflationOf, PolarFactorsAreCertified) {
  const int64_t m = 544, n = 600;
  for (size_t i = 0; i < spectra(m).size(); ++i) {
    SCOPED_TRACE(i);
    const auto a = with_spectrum(spectra(m)[i], m, n, 11, GetParam());
    const auto factor = NuclearNormEstimator(a).factor();
    const double norm = exact_nuclear_norm(a);
    EXPECT_GE(factor.value, 0.97 * factor.nuclear.upper);
    EXPECT_GE(inner_product(a, factor.x), factor.value);
    EXPECT_LE(factor.nuclear.lower, norm);
    EXPECT_GE(factor.nuclear.upper, norm);
    EXPECT_LE(at::linalg_matrix_norm(factor.x.to(at::kDouble), 2).item<double>(),
              1 + 30 * rounding(GetParam(), n));
    // The estimator of the transpose uses the same Gram matrix.
    expect_close(NuclearNormEstimator(a.t()).factor().x, factor.x.t(), 100 * rounding(GetParam(), n));
  }
}

// Regression: the result was discarded, and a step of a 2048 x 2048 x 3 x 3 kernel took almost twice as long.
TEST(Deflation, RemovedPartMakesUpForTheFilter) {
  const auto a = with_spectrum(power_law(544, 1.15), 544, 600, 13);
  GramMatrix gram(a);
  const auto deflation = Deflation::apply(gram);
  ASSERT_TRUE(deflation.has_value());
  auto filter = RationalFilter::solve(gram);
  ASSERT_TRUE(filter.has_value());
  ASSERT_LT(filter->value(), 0.97 * filter->nuclear_norm().upper);
  ASSERT_FALSE(filter->refine(gram));
  const double value = filter->value();
  auto q = std::move(*filter).matrix();
  const double total = value + deflation->undo(q);
  const auto factor = NuclearNormEstimator(a).factor();
  EXPECT_NEAR(factor.value, total, 1e-6 * total);
  EXPECT_GE(factor.value, 0.97 * factor.nuclear.upper);
}

// The precision of the Gram matrix does not resolve the poles.
TEST(Deflation, FilterWithoutWeightsIsDiscarded) {
  const auto a = with_spectrum(power_law(544, 1.6), 544, 600, 13);
  GramMatrix gram(a);
  ASSERT_TRUE(Deflation::apply(gram).has_value());
  auto filter = RationalFilter::solve(gram);
  ASSERT_TRUE(filter.has_value());
  while (filter->refine(gram)) continue;
  ASSERT_EQ(filter->value(), -std::numeric_limits<double>::infinity());
  const auto factor = NuclearNormEstimator(a).factor();
  EXPECT_GE(factor.value, 0.97 * factor.nuclear.upper);
  EXPECT_GE(inner_product(a, factor.x), factor.value);
}

// The matrix must not change if there is no deflation.
TEST(Deflation, IsNotUsedIfItDoesNotHelp) {
  auto rank_3 = at::zeros({512}, testing::options(at::kDouble));
  rank_3.narrow(0, 0, 3).fill_(1);
  for (const auto& a : {gaussian({600, 700}, 1), with_spectrum(power_law(256, 1), 256, 300, 2),
                        with_spectrum(rank_3, 512, 512, 3)}) {
    GramMatrix gram(a);
    const auto before = gram.matrix.tril();
    EXPECT_FALSE(Deflation::apply(gram).has_value());
    EXPECT_TRUE(at::equal(gram.matrix.tril(), before));
    const auto factor = NuclearNormEstimator(a).factor();
    EXPECT_GE(factor.value, 0.97 * exact_nuclear_norm(a));
  }
}

}  // namespace
}  // namespace tensorion
