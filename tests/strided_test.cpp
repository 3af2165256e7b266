#include "tensorion/core/strided.h"

#include "tests/support.h"

namespace tensorion {
namespace {

using testing::expect_close;
using testing::gaussian;
using testing::rounding;

// Shapes whose longest mode is the first, a middle or the last one, shapes with modes of size 1, an empty
// tensor, and tensors that are processed in several chunks.
const std::vector<std::vector<int64_t>> kShapes{{},         {7},          {5, 1, 3},    {64, 5, 3, 3},
                                                {3, 40, 2}, {2, 3, 4, 5}, {0, 4, 3, 3}, {40000},
                                                {3, 20000}, {130, 130, 3}};

// Returns the tensor in several memory layouts.
std::vector<at::Tensor> layouts(const at::Tensor& x) {
  std::vector<at::Tensor> all{x.clone()};
  for (int64_t mode = 0; mode + 1 < x.dim(); ++mode) {
    all.push_back(
        x.transpose(mode, x.dim() - 1).clone(at::MemoryFormat::Contiguous).transpose(mode, x.dim() - 1));
  }
  if (x.dim() > 0) all.push_back(at::stack({x, x}, -1).select(-1, 0));
  return all;
}

TEST(Strided, CopiesAnyLayout) {
  for (const auto& shape : kShapes) {
    const auto x = gaussian(shape, 1);
    for (const auto& from : layouts(x)) {
      for (const auto& to : layouts(at::zeros_like(x))) {
        copy_strided(from, to);
        EXPECT_TRUE(at::equal(to, x)) << x.sizes() << from.strides() << to.strides();
      }
    }
  }
}

TEST(Strided, AxpbyInAnyLayoutAndDtype) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const auto& shape : kShapes) {
      const auto x = gaussian(shape, 1, dtype), y = gaussian(shape, 2, dtype);
      const auto expected = 0.75 * y.to(at::kDouble) - 2.5 * x.to(at::kDouble);
      for (const auto& from : layouts(x)) {
        for (const auto& to : layouts(y)) {
          axpby_(0.75, to, -2.5, from);
          expect_close(to, expected, rounding(dtype, 2), c10::str(dtype, from.strides(), to.strides()));
        }
      }
    }
  }
  auto y = at::ones({3, 4, 5});
  axpby_(1, y, 2, at::ones({4, 1}).expand({3, 4, 5}));
  EXPECT_TRUE(at::equal(y, at::full({3, 4, 5}, 3.0))) << "an expanded tensor";
}

TEST(Strided, InnerProductInAnyLayoutAndDtype) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const auto& shape : kShapes) {
      const auto x = gaussian(shape, 1, dtype), y = gaussian(shape, 2, dtype);
      const auto products = x.to(at::kDouble) * y.to(at::kDouble);
      const double expected = products.sum().item<double>();
      const double tolerance = rounding(at::kDouble, x.numel()) * products.abs().sum().item<double>();
      for (const auto& left : layouts(x)) {
        for (const auto& right : layouts(y)) {
          EXPECT_NEAR(inner_product(left, right), expected, tolerance)
              << dtype << left.strides() << right.strides();
        }
      }
    }
  }
  // In single precision this sum would stop growing. The rounding errors of equal terms can all have the same
  // sign.
  constexpr int64_t kTerms = 1 << 20;
  const auto alike = at::full({kTerms}, 1.1f);
  EXPECT_NEAR(inner_product(alike, alike) / kTerms, std::pow(static_cast<double>(1.1f), 2),
              kTerms * testing::epsilon(at::kDouble));
}

TEST(Strided, AxpbyReportsNonfiniteResults) {
  for (const double bad : {double(NAN), double(INFINITY), -double(INFINITY)}) {
    for (const int64_t at : {0, 17000, 39999}) {
      SCOPED_TRACE(c10::str(bad, " at ", at));
      auto x = at::zeros({40000});
      auto y = at::ones({40000});
      EXPECT_TRUE(axpby_(1, y, 1, x));
      x[at] = bad;
      EXPECT_FALSE(axpby_(1, y, 1, x));
    }
  }
  auto y = at::full({9}, 3e38);
  EXPECT_FALSE(axpby_(1, y, 1, y.clone())) << "overflow";
}

// If writes did not change the version counter, autograd could compute gradients from modified memory.
TEST(Strided, WritesIncrementTheVersionCounter) {
  auto y = at::ones({64});
  const auto version = y._version();
  axpby_(1, y, 1, at::ones({64}));
  copy_strided(at::zeros({64}), y);
  EXPECT_EQ(y._version(), version + 2);
}

}  // namespace
}  // namespace tensorion
