#include "tensorion/polar/symmetric.h"

#include "tests/support.h"

namespace tensorion {
namespace {

using testing::expect_close;
using testing::gaussian;
using testing::rounding;

constexpr int64_t kSizes[] = {1, 2, 31, 33, 191, 193, 400, 777};

TEST(Symmetric, GramMatchesProductWithTranspose) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t m : kSizes) {
      SCOPED_TRACE(c10::str(m, " ", dtype));
      const auto a = gaussian({m, m + 17}, m, dtype);
      const double tolerance = rounding(dtype, m + 17);
      const auto expected = at::matmul(a.to(at::kDouble), a.to(at::kDouble).mT());
      const auto actual = gram(a);
      expect_close(actual, expected, tolerance);
      expect_close(actual, actual.mT(), tolerance, "symmetry");
      expect_close(gram(a.mT().contiguous().mT()), expected, tolerance, "transposed storage");
    }
  }
  const auto batch = gaussian({3, 5, 8}, 1);
  expect_close(gram(batch)[2], at::matmul(batch[2], batch[2].mT()), rounding(at::kFloat, 8));
}

TEST(Symmetric, CommutingProductMatchesMatmul) {
  for (const int64_t m : kSizes) {
    const auto s = gram(gaussian({m, m}, m, at::kDouble)) / m;
    const auto polynomial = s + 0.3 * at::matmul(s, s);
    expect_close(commuting_product(s, polynomial), at::matmul(s, polynomial), rounding(at::kDouble, m, 2),
                 std::to_string(m));
  }
}

TEST(Symmetric, MirrorCopiesTheLowerTriangle) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const int64_t m : kSizes) {
      auto w = gaussian({m, m}, m, dtype);
      const auto expected = w.tril() + w.tril(-1).mT();
      mirror_lower_(w);
      EXPECT_TRUE(at::equal(w, expected)) << m << " " << dtype;
    }
  }
}

TEST(Symmetric, AddToDiagonalAddsAMultipleOfTheIdentity) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const int64_t m : kSizes) {
      const auto w = gaussian({m, m}, m, dtype);
      const auto expected = w + 0.75 * at::eye(m, w.options());
      add_to_diagonal_(w, 0.75);
      EXPECT_TRUE(at::equal(w, expected)) << m << " " << dtype;
    }
  }
}

TEST(Symmetric, CopyLowerCopiesTheLowerTriangle) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const int64_t m : kSizes) {
      const auto w = gaussian({m, m}, m, dtype);
      EXPECT_TRUE(at::equal(copy_lower(w).tril(), w.tril())) << m << " " << dtype;
    }
  }
}

}  // namespace
}  // namespace tensorion
