#include "lab/experiments/laplacian.h"

#include <ATen/ATen.h>

#include <numbers>

#include "tests/support.h"

namespace tensorion::lab {
namespace {

using tensorion::testing::expect_close;

constexpr double kEps = std::numeric_limits<double>::epsilon();

at::Tensor dense(const TensorTrain& train) {
  auto x = at::ones({1, 1}, at::kDouble);
  for (const auto& core : train) x = at::matmul(x, core.flatten(1)).reshape({-1, core.size(2)});
  return x.flatten();
}

// Builds the n^d x n^d matrix from Kronecker products.
at::Tensor dense_laplacian(int64_t d, int64_t n) {
  const auto eye = at::eye(n, at::kDouble);
  const auto off = at::ones({n - 1}, at::kDouble);
  const auto one = (2 * eye - at::diag(off, 1) - at::diag(off, -1)) * static_cast<double>((n + 1) * (n + 1));
  auto sum = at::zeros({1, 1}, at::kDouble);
  auto before = at::ones({1, 1}, at::kDouble);
  for (int64_t k = 0; k < d; ++k) {
    sum = at::kron(sum, eye) + at::kron(before, one);
    before = at::kron(before, eye);
  }
  return sum;
}

// Returns the product of sines as a train of rank 2 whose second term is zero.
TensorTrain eigenvector(int64_t d, int64_t n) {
  auto train = random_train(d, n, 2, 5, at::kDouble);
  const auto sine =
      at::sin(at::arange(1, n + 1, at::kDouble) * (std::numbers::pi / static_cast<double>(n + 1)));
  for (auto& core : train) {
    core.zero_();
    core.select(2, 0).select(0, 0).copy_(sine);
  }
  return train;
}

struct Size {
  int64_t d, n, rank;
};
constexpr Size kSizes[] = {{1, 5, 3}, {2, 4, 3}, {3, 5, 2}, {4, 3, 4}, {5, 3, 20}};

TEST(TensorTrain, RandomTrainHasBoundedRanksAndUnitMeanNorm) {
  const auto train = random_train(5, 3, 20, 1, at::kDouble);
  const std::vector<std::vector<int64_t>> shapes{{1, 3, 3}, {3, 3, 9}, {9, 3, 9}, {9, 3, 3}, {3, 3, 1}};
  for (size_t k = 0; k < train.size(); ++k) EXPECT_EQ(train[k].sizes().vec(), shapes[k]);
  double sum = 0;
  constexpr int kCount = 200;
  for (int seed = 0; seed < kCount; ++seed)
    sum += std::pow(norm(random_train(6, 16, 4, seed, at::kDouble)), 2);
  EXPECT_NEAR(sum / kCount, 1, 0.15);
}

TEST(TensorTrain, NormMatchesDenseTensor) {
  for (const auto& [d, n, rank] : kSizes) {
    auto train = random_train(d, n, rank, 3, at::kDouble);
    const double expected = at::linalg_vector_norm(dense(train)).item<double>();
    EXPECT_NEAR(norm(train), expected, 20 * kEps * expected);
    // The norm of x - x is of the order of the rounding error, not of its square root.
    auto twice = train;
    if (d > 1) {
      for (size_t k = 0; k < twice.size(); ++k) {
        const auto& core = train[k];
        const auto zero = at::zeros_like(core);
        if (k == 0) {
          twice[k] = at::cat({core, -core}, 2);
        } else if (k + 1 == twice.size()) {
          twice[k] = at::cat({core, core}, 0);
        } else {
          twice[k] = at::cat({at::cat({core, zero}, 2), at::cat({zero, core}, 2)}, 0);
        }
      }
      EXPECT_LT(norm(twice), 20 * kEps * expected);
    }
  }
}

TEST(Laplacian, QuotientAndGradientMatchDenseOperator) {
  for (const auto& [d, n, rank] : kSizes) {
    auto train = random_train(d, n, rank, 7, at::kDouble);
    TensorTrain reference;
    for (auto& core : train) {
      core.requires_grad_(true);
      reference.push_back(core.detach().clone().requires_grad_(true));
    }
    const auto quotient = rayleigh_quotient(train);
    quotient.backward();
    const auto x = dense(reference);
    const auto expected = at::dot(x, at::mv(dense_laplacian(d, n), x)) / at::dot(x, x);
    expected.backward();
    EXPECT_EQ(quotient.dim(), 0);
    const double value = expected.item<double>();
    EXPECT_NEAR(quotient.item<double>(), value, 100 * kEps * value);
    for (size_t k = 0; k < train.size(); ++k) expect_close(train[k].grad(), reference[k].grad(), 1000 * kEps);
  }
}

TEST(Laplacian, ResidualMatchesDenseOperator) {
  for (const auto& [d, n, rank] : kSizes) {
    const auto train = random_train(d, n, rank, 9, at::kDouble);
    const auto x = dense(train);
    for (const double value : {0.0, 12.5, rayleigh_quotient(train).item<double>()}) {
      const auto expected =
          at::linalg_vector_norm(at::mv(dense_laplacian(d, n), x) - value * x).item<double>() /
          at::linalg_vector_norm(x).item<double>();
      EXPECT_NEAR(residual(train, value), expected, 200 * kEps * expected);
    }
  }
}

TEST(Laplacian, SmallestEigenvalueMatchesDenseOperator) {
  for (const auto& [d, n, rank] : kSizes) {
    const auto values = at::linalg_eigvalsh(dense_laplacian(d, n));
    const double exact = smallest_eigenvalue(d, n);
    EXPECT_NEAR(values[0].item<double>(), exact, 100 * kEps * values[-1].item<double>());
  }
}

// Includes sizes for which a dense vector would not fit into memory, such as 64^20.
TEST(Laplacian, ProductOfSinesIsAnEigenvector) {
  for (const auto& [d, n] : std::vector<std::pair<int64_t, int64_t>>{{3, 8}, {10, 32}, {20, 64}}) {
    const auto train = eigenvector(d, n);
    const double exact = smallest_eigenvalue(d, n);
    EXPECT_NEAR(rayleigh_quotient(train).item<double>(), exact, 20 * kEps * static_cast<double>(d) * exact);
    const double floor = kEps * 4 * std::pow(static_cast<double>(n + 1), 2);
    EXPECT_LT(residual(train, exact), 4 * floor * std::sqrt(static_cast<double>(d)));
  }
}

TEST(Laplacian, ScaleOfTheTrainDoesNotMatter) {
  auto train = random_train(20, 16, 4, 11, at::kDouble);
  const double quotient = rayleigh_quotient(train).item<double>();
  const double left = residual(train, quotient);
  for (const double scale : {1e-30, 1e30}) {
    TensorTrain scaled;
    for (const auto& core : train) scaled.push_back((core * scale).requires_grad_(true));
    const auto value = rayleigh_quotient(scaled);
    value.backward();
    EXPECT_NEAR(value.item<double>(), quotient, 1000 * kEps * quotient);
    EXPECT_NEAR(residual(scaled, quotient), left, 1000 * kEps * left);
    for (const auto& core : scaled) EXPECT_TRUE(at::isfinite(core.grad()).all().item<bool>());
  }
}

}  // namespace
}  // namespace tensorion::lab
