#include "tensorion/polar/newton_schulz.h"

#include "tensorion/polar/newton_schulz_batch.h"
#include "tests/support.h"

namespace tensorion {
namespace {

using testing::gaussian;
using testing::power_law;
using testing::with_spectrum;

double quality(const at::Tensor& a, const at::Tensor& x) {
  const auto wide = x.to(at::kDouble);
  const double nuclear = at::linalg_svdvals(a.to(at::kDouble)).sum().item<double>();
  return (a.to(at::kDouble) * wide).sum().item<double>() /
         (at::linalg_svdvals(wide).max().item<double>() * nuclear);
}

// Runs the code for accelerators on the CPU. Products of half precision are summed in single precision there,
// too.
at::Tensor on_device(const at::Tensor& a, const NewtonSchulzSchedule& schedule) {
  return newton_schulz_on_device(a, schedule);
}

struct Case {
  const char* name;
  int64_t steps;
};

class NewtonSchulzBatched : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(NewtonSchulz, NewtonSchulzBatched,
                         ::testing::Values(Case{"muon", 5}, Case{"muon", 8}, Case{"polar_express", 5},
                                           Case{"polar_express", 8}, Case{"cans", 5}));

// Regression: the iteration on accelerators used rounded Gram matrices. The quality was 0.17 instead of 0.92
// after five steps of Polar Express, and NaN after eight.
TEST_P(NewtonSchulzBatched, MatchesQualityOfSinglePrecision) {
  const NewtonSchulzSchedule schedule{
      coefficient_schedule(named_coefficients(GetParam().name), GetParam().steps)};
  for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{{32, 32}, {32, 160}}) {
    for (const double exponent : {0.5, 1.5}) {
      SCOPED_TRACE(c10::str(m, " x ", n, ", exponent ", exponent));
      const auto a = with_spectrum(power_law(m, exponent), m, n, m);
      EXPECT_NEAR(quality(a, on_device(a, schedule)), quality(a, newton_schulz(a, schedule)), 0.01);
    }
  }
}

TEST(NewtonSchulz, BatchesAreScaleInvariant) {
  const auto schedule = newton_schulz_schedule({}, c10::kCUDA);
  EXPECT_EQ(schedule.normalization, Normalization::kSchatten4);
  const auto a = gaussian({3, 12, 20}, 1);
  const auto expected = on_device(a, schedule);
  EXPECT_EQ(expected.sizes(), a.sizes());
  for (const double scale : {0x1p-100, 0x1p100}) {
    EXPECT_TRUE(at::equal(on_device(a * scale, schedule), expected)) << scale;
  }
  EXPECT_FALSE(on_device(at::zeros({4, 5}), schedule).any().item<bool>());
}

// Both normalizations bound the initial singular values by 1. The tighter one gives the higher quality.
TEST(NewtonSchulz, SchattenNormalizationIsBetterThanFrobenius) {
  const auto a = gaussian({200, 200}, 3);
  const auto steps = polar_express_schedule(4);
  const double close = quality(a, newton_schulz(a, {steps, Normalization::kSchatten4}));
  EXPECT_GT(close, 0.97);
  EXPECT_GT(close, quality(a, newton_schulz(a, {steps, Normalization::kFrobenius})));
}

TEST(NewtonSchulz, DefaultScheduleDependsOnDevice) {
  const auto cpu = newton_schulz_schedule({}, c10::kCPU);
  EXPECT_EQ(cpu.steps, coefficient_schedule(named_coefficients("muon"), 5));
  EXPECT_EQ(cpu.normalization, Normalization::kFrobenius);
  EXPECT_EQ(newton_schulz_schedule({}, c10::kCUDA).steps, polar_express_schedule(6));
  PolarOptions options;
  options.ns_steps = 4;
  EXPECT_EQ(newton_schulz_schedule(options, c10::kMPS).steps, polar_express_schedule(4));
  options.ns_coefficients = named_coefficients("cans");
  EXPECT_EQ(newton_schulz_schedule(options, c10::kMPS).steps.size(), 4);
}

// Meta tensors have no values, so this shows that the iteration never reads a value from the device.
TEST(NewtonSchulz, DoesNotSynchronizeWithTheDevice) {
  const auto a = at::empty({2, 30, 20}, at::TensorOptions(at::kMeta).dtype(at::kBFloat16));
  EXPECT_EQ(polar(a).sizes(), a.sizes());
}

}  // namespace
}  // namespace tensorion
