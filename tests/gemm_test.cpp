#include "tensorion/core/gemm.h"

#include "tests/support.h"

namespace tensorion {
namespace {

using testing::expect_close;
using testing::gaussian;
using testing::rounding;

struct Case {
  int64_t m, k, n;
  at::ScalarType dtype;
};

class Gemm : public ::testing::TestWithParam<Case> {};

// The sizes lie on both sides of the size from which oneDNN is used.
INSTANTIATE_TEST_SUITE_P(Sizes, Gemm,
                         ::testing::Values(Case{1, 1, 1, at::kFloat}, Case{7, 5, 3, at::kFloat},
                                           Case{200, 300, 100, at::kFloat}, Case{1, 3000, 1000, at::kFloat},
                                           Case{1000, 1, 3000, at::kFloat}, Case{3000, 1000, 1, at::kFloat},
                                           Case{128, 128, 128, at::kFloat}, Case{200, 300, 100, at::kDouble},
                                           Case{0, 5, 3, at::kFloat}, Case{300, 0, 300, at::kFloat}),
                         [](const auto& info) {
                           const auto& c = info.param;
                           return c10::str(c.m, "x", c.k, "x", c.n, c.dtype);
                         });

// A matrix in the given memory layout: 0 by rows, 1 by columns, 2 a part of a larger matrix.
at::Tensor with_layout(const at::Tensor& x, int layout) {
  if (layout == 0) return x;
  if (layout == 1) return x.t().contiguous().t();
  auto larger = at::full({x.size(0) + 3, x.size(1) + 5}, NAN, x.options());
  auto part = larger.narrow(0, 2, x.size(0)).narrow(1, 1, x.size(1));
  part.copy_(x);
  return part;
}

TEST_P(Gemm, MatchesDoublePrecisionInAllLayouts) {
  const auto [m, k, n, dtype] = GetParam();
  const auto a = gaussian({m, k}, 1, dtype), b = gaussian({k, n}, 2, dtype), c = gaussian({m, n}, 3, dtype);
  const auto exact = at::mm(a.to(at::kDouble), b.to(at::kDouble));
  for (int layout = 0; layout < 27; ++layout) {
    SCOPED_TRACE(layout);
    const auto left = with_layout(a, layout % 3), right = with_layout(b, layout / 3 % 3);
    auto out = with_layout(at::full({m, n}, NAN, a.options()), layout / 9);
    gemm_out(out, left, right);
    expect_close(out, exact, rounding(dtype, k));
    out.copy_(c);
    gemm_out(out, left, right, 0.5, -2);
    expect_close(out, 0.5 * exact - 2 * c.to(at::kDouble), rounding(dtype, k + 1));
  }
}

}  // namespace
}  // namespace tensorion
