#include "tensorion/norms.h"

#include <algorithm>

#include "tensorion/unfolding.h"
#include "tests/tensors.h"

namespace tensorion {
namespace {

using testing::epsilon;
using testing::expect_error;
using testing::gaussian;
using testing::rounding;

const std::vector<std::vector<int64_t>> kShapes{{7},       {1, 5, 1},    {4, 6},          {1, 6, 4},
                                                {3, 4, 5}, {8, 4, 3, 3}, {2, 3, 1, 2, 4}, {2, 2, 2, 2, 2, 2}};

// Returns the sum of the singular values of the unfolding, computed in double precision.
double nuclear_by_svd(const at::Tensor& x, const Modes& modes) {
  return at::linalg_svdvals(unfold(x.to(at::kDouble), modes)).sum().item<double>();
}

double dual_by_brute_force(const at::Tensor& x) {
  double largest = 0;
  for (const auto& modes : unfoldings(x.sizes())) largest = std::max(largest, nuclear_by_svd(x, modes));
  return effective_order(x.sizes()) < 2 ? x.to(at::kDouble).norm().item<double>() : largest;
}

void expect_value(const at::Tensor& actual, double expected, double tolerance, const std::string& what) {
  EXPECT_EQ(actual.dim(), 0) << what;
  EXPECT_NEAR(actual.item<double>(), expected, tolerance * expected) << what;
}

TEST(Norms, NuclearAndDualMatchSvdInEveryDtypeAndLayout) {
  for (const auto dtype : {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble}) {
    uint64_t seed = 0;
    for (const auto& shape : kShapes) {
      const auto x = gaussian(shape, ++seed, dtype);
      // Norms are computed at least in fp32, and the result is rounded to the dtype.
      const double tolerance =
          rounding(dtype == at::kDouble ? at::kDouble : at::kFloat, x.numel()) + epsilon(dtype);
      auto all = testing::in_other_layouts(x);
      all.push_back(x);
      for (const auto& laid_out : all) {
        const auto what = c10::str(at::IntArrayRef(shape), " ", dtype);
        const auto dual = dual_norm(laid_out);
        EXPECT_EQ(dual.scalar_type(), dtype);
        expect_value(dual, dual_by_brute_force(x), tolerance, what);
        for (const auto& modes : unfoldings(shape)) {
          const auto nuclear = tensorion::nuclear_norm(laid_out, modes);
          EXPECT_EQ(nuclear.scalar_type(), dtype);
          expect_value(nuclear, nuclear_by_svd(x, modes), tolerance, what);
        }
      }
    }
  }
}

// The unfolding with the largest nuclear norm is not always the balanced one. Here each unfolding in turn has
// rank one, and thus the smallest nuclear norm.
TEST(Norms, DualFindsLargestUnfolding) {
  const std::vector<int64_t> shape{4, 4, 3, 3};
  for (const auto& modes : unfoldings(shape)) {
    const Unfolding unfolding(shape, modes);
    const auto rank_one = unfolding.fold(at::outer(gaussian({unfolding.rows()}, 1, at::kDouble),
                                                   gaussian({unfolding.cols()}, 2, at::kDouble)));
    const double tolerance = rounding(at::kDouble, rank_one.numel());
    expect_value(dual_norm(rank_one), dual_by_brute_force(rank_one), tolerance,
                 c10::str(at::IntArrayRef(modes)));
    const auto noisy = rank_one + 0.01 * gaussian(shape, 3, at::kDouble);
    expect_value(dual_norm(noisy), dual_by_brute_force(noisy), tolerance, c10::str(at::IntArrayRef(modes)));
  }
}

TEST(Norms, FamilyRestrictsUnfoldings) {
  const auto x = gaussian({4, 3, 5}, 8, at::kDouble);
  const Family one{{1, 2}}, two{{0}, {1}};
  expect_value(dual_norm(x, one), nuclear_by_svd(x, {0}), rounding(at::kDouble, 60), "one unfolding");
  const double larger = std::max(nuclear_by_svd(x, {0}), nuclear_by_svd(x, {1}));
  expect_value(dual_norm(x, two), larger, rounding(at::kDouble, 60), "two unfoldings");
  const auto [lower, upper] = relaxed_norm(x, 1e-6, one);
  const double spectral = at::linalg_svdvals(unfold(x, {0}))[0].item<double>();
  EXPECT_LE(lower, spectral);
  EXPECT_GE(upper, spectral);
  EXPECT_LE(upper - lower, 1e-6 * upper);
  expect_error<c10::ValueError>(
      [&] { dual_norm(x.unsqueeze(0), {{0}}); },
      "[tensorion.dual_norm] the rows and the columns of every unfolding in family");
}

TEST(Norms, KnownValues) {
  const auto x = testing::orthogonally_decomposable({3, -2, 1, 0.5}, {4, 5, 6}, 1);
  const double tolerance = rounding(at::kDouble, x.numel());
  for (const auto& modes : unfoldings(x.sizes())) {
    expect_value(tensorion::nuclear_norm(x, modes), 6.5, tolerance, c10::str(at::IntArrayRef(modes)));
  }
  expect_value(dual_norm(x), 6.5, tolerance, "odeco");
  // The rows of the unfoldings of the W state are (0 1 1 0) and (1 0 0 0).
  expect_value(dual_norm(testing::w_state()), 1 + std::sqrt(2.0), tolerance, "W state");
  const auto rank_one = testing::outer(
      {gaussian({3}, 1, at::kDouble), gaussian({4}, 2, at::kDouble), gaussian({5}, 3, at::kDouble)});
  expect_value(dual_norm(rank_one), rank_one.norm().item<double>(), tolerance, "rank one");
}

TEST(Norms, VectorsScalarsZerosAndEmptyTensors) {
  const auto vector = gaussian({1, 9, 1}, 1, at::kDouble);
  const double euclidean = vector.norm().item<double>(), tolerance = rounding(at::kDouble, 9);
  for (int64_t mode = 0; mode < 3; ++mode) {
    expect_value(tensorion::nuclear_norm(vector, {mode}), euclidean, tolerance, "vector");
  }
  expect_value(dual_norm(vector), euclidean, tolerance, "vector");
  expect_value(tensorion::nuclear_norm(vector.flatten(), {0}), euclidean, tolerance, "vector");
  const auto scalar = at::scalar_tensor(-3.0, at::kFloat);
  EXPECT_EQ(tensorion::nuclear_norm(scalar, {}).item<float>(), 3);
  EXPECT_EQ(dual_norm(scalar).item<float>(), 3);
  for (const auto& shape : std::vector<std::vector<int64_t>>{{0}, {3, 0}, {2, 0, 4}, {2, 3, 4}}) {
    const auto zero = at::zeros(shape, at::kFloat);
    EXPECT_EQ(dual_norm(zero).item<float>(), 0) << at::IntArrayRef(shape);
    EXPECT_EQ(tensorion::nuclear_norm(zero, {0}).item<float>(), 0) << at::IntArrayRef(shape);
  }
}

TEST(Norms, ExtremeScales) {
  const auto x = gaussian({4, 4, 3, 3}, 1);
  for (const double scale : {1e-30, 1e-20, 1e20, 1e30}) {
    const auto y = x * scale;
    const double tolerance = rounding(at::kFloat, x.numel());
    expect_value(dual_norm(y), dual_by_brute_force(y), tolerance, std::to_string(scale));
    expect_value(tensorion::nuclear_norm(y, {0}), nuclear_by_svd(y, {0}), tolerance, std::to_string(scale));
  }
  const auto subnormal = at::full({2, 3}, 1e-44, at::kFloat);  // seven times the smallest float
  expect_value(dual_norm(subnormal), subnormal.to(at::kDouble).norm().item<double>(), 0.05, "subnormal");
}

// The gradient of the dual norm is a folded polar factor, which solves the LMO.
TEST(Norms, GradientOfDualIsFoldedPolarFactor) {
  const auto x = gaussian({4, 5, 6}, 1, at::kDouble).set_requires_grad(true);
  dual_norm(x).backward();
  const Unfolding largest(x.sizes(), {2});
  const auto [u, s, vh] = at::linalg_svd(largest.unfold(x.detach()), /*full_matrices=*/false);
  EXPECT_NEAR(s.sum().item<double>(), dual_by_brute_force(x.detach()), rounding(at::kDouble, x.numel()));
  testing::expect_close(x.grad(), largest.fold(at::matmul(u, vh)),
                        testing::polar_rounding(largest.unfold(x.detach()), "svd"));
}

TEST(Norms, ThrowForBadInput) {
  const auto x = gaussian({3, 4, 5}, 1);
  auto with_nan = x.clone();
  with_nan[0][1][2] = NAN;
  auto with_inf = x.clone();
  with_inf[2][3][4] = -INFINITY;
  using Norm = std::function<void(const at::Tensor&)>;
  const std::vector<std::pair<std::string, Norm>> norms{
      {"nuclear_norm", [](const at::Tensor& t) { tensorion::nuclear_norm(t, {0}); }},
      {"dual_norm", [](const at::Tensor& t) { dual_norm(t); }},
      {"relaxed_norm", [](const at::Tensor& t) { relaxed_norm(t); }},
      {"spectral_norm", [](const at::Tensor& t) { spectral_norm(t); }},
      {"conv_norm", [](const at::Tensor& t) { conv_norm(t, {8}); }}};
  for (const auto& [name, function] : norms) {
    SCOPED_TRACE(name);
    const auto& norm = function;  // clang 14 cannot capture a structured binding
    const auto prefix = "[tensorion." + name + "] ";
    const auto dtypes = prefix + "expected a tensor of dtype BFloat16, Half, Float or Double, got ";
    const auto finite = prefix + "expected finite values, got ";
    expect_error<c10::TypeError>([&] { norm(x.to(at::kLong)); }, dtypes + "Long");
    expect_error<c10::TypeError>([&] { norm(x.to(at::kBool)); }, dtypes + "Bool");
    expect_error<c10::TypeError>([&] { norm(x.to(at::kComplexFloat)); }, dtypes + "ComplexFloat");
    expect_error<c10::ValueError>([&] { norm(with_nan); }, finite + "nan");
    expect_error<c10::ValueError>([&] { norm(with_inf); }, finite + "inf");
  }
  expect_error<c10::ValueError>([&] { tensorion::nuclear_norm(x, {3}); }, "mode must be in [0, 3), got 3");
  expect_error<c10::ValueError>([&] { tensorion::nuclear_norm(x, {}); }, "at least one mode");
  expect_error<c10::ValueError>([&] { tensorion::nuclear_norm(x, {0, 1, 2}); }, "got all 3 modes");
  expect_error<c10::ValueError>([&] { tensorion::nuclear_norm(x, {1, 1}); }, "distinct");
  expect_error<c10::ValueError>([&] { tensorion::nuclear_norm(at::scalar_tensor(1.0), {0}); },
                                "mode must be in [0, 0)");
}

}  // namespace
}  // namespace tensorion
