#include "tensorion/polar/positive_definite.h"

#include "tests/support.h"

namespace tensorion {
namespace {

using testing::expect_close;
using testing::gaussian;
using testing::rounding;
using testing::ThreadGuard;

struct Case {
  int64_t m;
  at::ScalarType dtype;
};

// Returns a positive definite matrix.
at::Tensor positive_definite(int64_t m) {
  const auto a = gaussian({m, 2 * m}, m, at::kDouble);
  return at::mm(a, a.t()) / m + 0.1 * at::eye(m, at::kDouble);
}

class PositiveDefinite : public ::testing::TestWithParam<Case> {};

// Matrices of 320 rows and more are eliminated in blocks of 96 rows with oneDNN, and of 64 rows otherwise.
INSTANTIATE_TEST_SUITE_P(Sizes, PositiveDefinite,
                         ::testing::Values(Case{1, at::kFloat}, Case{2, at::kFloat}, Case{33, at::kFloat},
                                           Case{319, at::kFloat}, Case{320, at::kFloat},
                                           Case{512, at::kFloat}, Case{577, at::kFloat},
                                           Case{777, at::kFloat}, Case{33, at::kDouble},
                                           Case{777, at::kDouble}),
                         [](const auto& info) { return c10::str(info.param.m, info.param.dtype); });

TEST_P(PositiveDefinite, InverseAndDeterminant) {
  const auto [m, dtype] = GetParam();
  for (const int threads : {1, 2, 4, 8}) {
    SCOPED_TRACE(threads);
    const ThreadGuard guard(threads);
    const auto s = positive_definite(m);
    // Fill the upper triangle with other values, because only the lower triangle may be read.
    auto w = (s + at::full_like(s, 1e3).triu(1)).to(dtype);
    auto copy = w.clone();
    const double condition = testing::condition_number(s);
    const auto log_det = invert_(w);
    ASSERT_TRUE(log_det.has_value());
    // The result is a sum of the logarithms of m pivots, each of which is a sum of up to m products.
    const double tolerance = rounding(dtype, m * m) * condition;
    EXPECT_NEAR(*log_det, std::get<1>(at::linalg_slogdet(s)).item<double>(), tolerance);
    expect_close(w.tril(), at::linalg_inv(s).tril(), rounding(dtype, m) * condition);
    const auto log_det_alone = log_det_(copy);
    ASSERT_TRUE(log_det_alone.has_value());
    EXPECT_NEAR(*log_det_alone, *log_det, tolerance);
  }
}

// The error must not grow faster than the condition number, because certificates rely on it. If the inverses
// of blocks, instead of their Cholesky factors, are used in Schur complements, it does: here by a factor of
// 1e9.
TEST(PositiveDefinite, InversesOfIllConditionedMatrices) {
  const double smallest = 1e-5;
  for (const int64_t m : {320, 384, 640}) {
    SCOPED_TRACE(m);
    const auto spectrum = testing::power_law(m, 3.0) + smallest;
    const auto q = std::get<0>(at::linalg_qr(gaussian({m, m}, 2, at::kDouble)));
    auto w = at::mm(q * spectrum, q.t()).to(at::kFloat);
    const auto expected = at::linalg_inv(w.tril().to(at::kDouble) + w.tril(-1).to(at::kDouble).t()).tril();
    ASSERT_TRUE(invert_(w).has_value());
    const double error = (w.tril().to(at::kDouble) - expected).norm().item<double>();
    EXPECT_LE(error, testing::epsilon(at::kFloat) / smallest * expected.norm().item<double>());
  }
}

TEST(PositiveDefinite, IndefiniteMatricesAreReported) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t m : {3, 700}) {
      for (const int64_t negative : {int64_t{1}, m - 1}) {
        SCOPED_TRACE(c10::str(dtype, " ", m, " ", negative));
        auto w = at::eye(m, dtype);
        w[negative][negative] = -1;
        auto copy = w.clone();
        EXPECT_FALSE(invert_(w).has_value());
        EXPECT_FALSE(log_det_(copy).has_value());
      }
    }
    auto zero = at::zeros({4, 4}, dtype);
    EXPECT_FALSE(invert_(zero).has_value());
  }
}

}  // namespace
}  // namespace tensorion
