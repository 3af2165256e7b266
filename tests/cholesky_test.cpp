#include "tensorion/polar/cholesky.h"

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

class Cholesky : public ::testing::TestWithParam<Case> {};

// Matrices of 512 rows and more are factorized in blocks of 192 rows with oneDNN, and of 96 rows otherwise.
INSTANTIATE_TEST_SUITE_P(Sizes, Cholesky,
                         ::testing::Values(Case{1, at::kFloat}, Case{2, at::kFloat}, Case{33, at::kFloat},
                                           Case{193, at::kFloat}, Case{512, at::kFloat},
                                           Case{576, at::kFloat}, Case{577, at::kFloat},
                                           Case{777, at::kFloat}, Case{33, at::kDouble},
                                           Case{777, at::kDouble}),
                         [](const auto& info) { return c10::str(info.param.m, info.param.dtype); });

TEST_P(Cholesky, FactorInverseAndDeterminant) {
  const auto [m, dtype] = GetParam();
  for (const int threads : {1, 2}) {
    SCOPED_TRACE(threads);
    const ThreadGuard guard(threads);
    const auto s = positive_definite(m);
    // Fill the upper triangle with other values, because only the lower triangle may be read.
    auto w = (s + at::full_like(s, 1e3).triu(1)).to(dtype);
    const double condition = testing::condition_number(s);
    const auto log_det = cholesky_(w);
    ASSERT_TRUE(log_det.has_value());
    // The result is a sum of the logarithms of m pivots, each of which is a sum of up to m products.
    EXPECT_NEAR(*log_det, std::get<1>(at::linalg_slogdet(s)).item<double>(),
                rounding(dtype, m * m) * condition);
    expect_close(w.tril(), at::linalg_cholesky(s), rounding(dtype, m) * condition);
    cholesky_inverse_(w);
    expect_close(w.tril(), at::linalg_inv(s).tril(), rounding(dtype, m) * condition);
  }
}

// The backward error of a factorization must not grow with the condition number, because certificates rely on
// it.
TEST(Cholesky, BackwardErrorIsSmallForIllConditionedMatrices) {
  const int64_t m = 640;
  const auto spectrum = testing::power_law(m, 2.0) + 1e-5;
  const auto q = std::get<0>(at::linalg_qr(gaussian({m, m}, 2, at::kDouble)));
  auto w = at::mm(q * spectrum, q.t()).to(at::kFloat);
  const auto exact = w.to(at::kDouble);
  ASSERT_TRUE(cholesky_(w).has_value());
  const auto lower = w.tril().to(at::kDouble);
  const double error = (at::mm(lower, lower.t()) - exact).norm().item<double>();
  EXPECT_LE(error, 2 * testing::epsilon(at::kFloat) * spectrum.sum().item<double>());
}

TEST(Cholesky, IndefiniteMatricesAreReported) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t m : {3, 700}) {
      for (const int64_t negative : {int64_t{1}, m - 1}) {
        SCOPED_TRACE(c10::str(dtype, " ", m, " ", negative));
        auto w = at::eye(m, dtype);
        w[negative][negative] = -1;
        EXPECT_FALSE(cholesky_(w).has_value());
      }
    }
    auto zero = at::zeros({4, 4}, dtype);
    EXPECT_FALSE(cholesky_(zero).has_value());
  }
}

}  // namespace
}  // namespace tensorion
