#include "lab/experiments/convolution_norms.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "tensorion/norms.h"
#include "tests/support.h"

namespace tensorion::lab {
namespace {

using tensorion::testing::gaussian;

// The parameter is the largest number of elements for which the relaxed norm is certified. Its values certify
// either none or all of the kernels in these tests.
class KernelNorms : public ::testing::TestWithParam<int64_t> {
 protected:
  std::vector<ConvolutionNorms> norms_of(const std::map<std::string, at::Tensor>& kernels) const {
    ConvolutionOptions options;
    options.size = 8;
    options.certified = GetParam();
    return convolution_norms(kernels, options);
  }
};

TEST_P(KernelNorms, SatisfyTheirInequalities) {
  const std::map<std::string, at::Tensor> kernels{{"a", gaussian({5, 4, 3, 3}, 1)},
                                                  {"b", gaussian({4, 6, 1, 3}, 2)},
                                                  {"bias", gaussian({5}, 3)},
                                                  {"pointwise", gaussian({5, 4, 1, 1}, 4)}};
  const auto all = norms_of(kernels);
  ASSERT_EQ(all.size(), 2U);
  for (const auto& norms : all) {
    SCOPED_TRACE(norms.layer);
    const auto& kernel = kernels.at(norms.layer);
    const auto bounds = relaxed_norm(kernel);
    EXPECT_LE(norms.relaxed_lower, bounds.upper * 1.001);
    EXPECT_GE(norms.relaxed_upper, bounds.lower * 0.999);
    if (GetParam() > 0) {
      EXPECT_LE(norms.relaxed_upper, 1.011 * norms.relaxed_lower);
    }
    EXPECT_LE(norms.spectral, norms.convolution * 1.001);
    EXPECT_LE(norms.convolution, norms.root * norms.relaxed_upper * 1.001);
    EXPECT_NEAR(norms.convolution, conv_norm(kernel, {8, 8}), 1e-6);
    EXPECT_NEAR(norms.root, norms.layer == "a" ? 3 : std::sqrt(3.0), 1e-15);
  }
}

// The example in docs/math.md: a kernel of two taps, the identity and a rotation. ||T_K||_2 is 2. The bound
// by the relaxed norm is attained, whereas a bound by the real spectral norm would be sqrt(2).
TEST_P(KernelNorms, AreBoundedByRelaxedNormNotByRealNorm) {
  const auto kernel = at::tensor({1., 0., 0., -1., 0., 1., 1., 0.}).reshape({2, 2, 1, 2});
  const auto all = norms_of({{"rotation", kernel}});
  ASSERT_EQ(all.size(), 1U);
  const auto& norms = all.front();
  EXPECT_NEAR(norms.convolution, 2, 1e-5);
  EXPECT_NEAR(norms.spectral, 1, 1e-5);
  EXPECT_GT(norms.convolution, 1.4 * norms.root * norms.spectral);
  EXPECT_GE(norms.relaxed_upper, std::sqrt(2.0) * (1 - 1e-5));
  EXPECT_LE(norms.convolution, norms.root * norms.relaxed_upper * (1 + 1e-5));
}

INSTANTIATE_TEST_SUITE_P(Certified, KernelNorms, ::testing::Values(0, 1000));

}  // namespace
}  // namespace tensorion::lab
