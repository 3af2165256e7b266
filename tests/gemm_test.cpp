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

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const auto& c = info.param;
  return c10::str(c.m, "x", c.k, "x", c.n, c.dtype);
}

class Gemm : public ::testing::TestWithParam<Case> {};

// The sizes lie on both sides of the size from which oneDNN is used.
INSTANTIATE_TEST_SUITE_P(Sizes, Gemm,
                         ::testing::Values(Case{1, 1, 1, at::kFloat}, Case{7, 5, 3, at::kFloat},
                                           Case{200, 300, 100, at::kFloat}, Case{1, 3000, 1000, at::kFloat},
                                           Case{1000, 1, 3000, at::kFloat}, Case{3000, 1000, 1, at::kFloat},
                                           Case{128, 128, 128, at::kFloat}, Case{200, 300, 100, at::kDouble},
                                           Case{0, 5, 3, at::kFloat}, Case{300, 0, 300, at::kFloat}),
                         case_name);

// A matrix in the given memory layout: 0 by rows, 1 by columns, 2 a part of a larger matrix.
at::Tensor with_layout(const at::Tensor& x, int layout) {
  if (layout == 0) return x;
  if (layout == 1) return x.t().contiguous().t();
  auto larger = at::full({x.size(0) + 3, x.size(1) + 5}, NAN, x.options());
  auto part = larger.narrow(0, 2, x.size(0)).narrow(1, 1, x.size(1));
  part.copy_(x);
  return part;
}

using GemmFunction = void(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, double alpha,
                          double beta);

void expect_double_precision_in_all_layouts(const Case& sizes, GemmFunction* gemm) {
  const auto [m, k, n, dtype] = sizes;
  const auto a = gaussian({m, k}, 1, dtype), b = gaussian({k, n}, 2, dtype), c = gaussian({m, n}, 3, dtype);
  const auto exact = at::mm(a.to(at::kDouble), b.to(at::kDouble));
  for (int layout = 0; layout < 27; ++layout) {
    SCOPED_TRACE(layout);
    const auto left = with_layout(a, layout % 3), right = with_layout(b, layout / 3 % 3);
    auto out = with_layout(at::full({m, n}, NAN, a.options()), layout / 9);
    gemm(out, left, right, 1, 0);
    expect_close(out, exact, rounding(dtype, k));
    out.copy_(c);
    gemm(out, left, right, 0.5, -2);
    expect_close(out, 0.5 * exact - 2 * c.to(at::kDouble), rounding(dtype, k + 1));
  }
}

TEST_P(Gemm, MatchesDoublePrecisionInAllLayouts) {
  expect_double_precision_in_all_layouts(GetParam(), gemm_out);
}

// gemm_out uses oneDNN on some CPUs only, so oneDNN is tested by itself as well.
class OneDnnGemm : public Gemm {};

INSTANTIATE_TEST_SUITE_P(Sizes, OneDnnGemm,
                         ::testing::Values(Case{128, 128, 128, at::kFloat}, Case{200, 300, 100, at::kFloat},
                                           Case{3000, 16, 50, at::kFloat},
                                           // These are computed in panels of columns.
                                           Case{60, 1300, 800, at::kFloat}, Case{60, 1300, 769, at::kFloat},
                                           Case{800, 1300, 60, at::kFloat}),
                         case_name);

TEST_P(OneDnnGemm, MatchesDoublePrecisionInAllLayouts) {
  const auto& sizes = GetParam();
  if (!supports_onednn(at::empty({sizes.m, sizes.n}), at::empty({sizes.m, sizes.k})))
    GTEST_SKIP() << "torch was built without oneDNN, or does not export it";
  expect_double_precision_in_all_layouts(sizes, onednn_gemm_out);
}

}  // namespace
}  // namespace tensorion
