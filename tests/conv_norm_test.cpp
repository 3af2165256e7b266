#include <algorithm>

#include "tensorion/norms.h"
#include "tensorion/unfolding.h"
#include "tests/tensors.h"

namespace tensorion {
namespace {

using testing::expect_error;
using testing::gaussian;
using testing::rounding;

constexpr double kConverged = 1e-7;  // relative accuracy of the iterative method, far above rounding

struct Case {
  std::vector<int64_t> kernel;
  std::vector<int64_t> input;
};

// One, two and three spatial modes, odd and even sizes of kernels and inputs, kernels as large as the input
// and larger, single channels and single taps.
const std::vector<Case> kCases{{{3, 2, 3}, {7}},
                               {{2, 4, 4}, {9}},
                               {{1, 1, 2}, {8}},
                               {{2, 3, 5}, {3}},
                               {{3, 2, 1}, {5}},
                               {{3, 4, 3, 3}, {5, 6}},
                               {{4, 2, 2, 3}, {6, 5}},
                               {{2, 2, 4, 4}, {4, 4}},
                               {{2, 2, 5, 4}, {3, 2}},
                               {{1, 1, 3, 3}, {8, 8}},
                               {{5, 4, 1, 1}, {3, 3}},
                               {{2, 2, 3, 3}, {1, 1}},
                               {{2, 3, 3, 2, 3}, {3, 4, 3}},
                               {{3, 2, 2, 2, 2}, {3, 2, 4}},
                               {{2, 2, 3, 3, 3}, {1, 4, 2}}};

// Returns the matrix of the convolution, computed element by element from the definition.
at::Tensor dense_matrix(const at::Tensor& kernel, const std::vector<int64_t>& input, bool circular) {
  const auto spatial = static_cast<int64_t>(input.size());
  const int64_t positions = c10::multiply_integers(input);
  const int64_t taps = kernel[0][0].numel();
  const auto flat = kernel.to(at::kDouble).flatten(2);
  auto matrix = at::zeros({kernel.size(0), positions, kernel.size(1), positions}, at::kDouble);
  for (int64_t position = 0; position < positions; ++position) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      int64_t p = position, k = tap, source = 0, stride = 1;
      bool inside = true;
      for (int64_t j = spatial - 1; j >= 0; --j) {
        const int64_t n = input[j], size = kernel.size(2 + j);
        int64_t index = p % n + k % size - (size - 1) / 2;
        inside = inside && index >= 0 && index < n;
        index = ((index % n) + n) % n;
        source += index * stride;
        stride *= n;
        p /= n;
        k /= size;
      }
      if (inside || circular) {
        matrix.select(1, position).select(2, source).add_(flat.select(2, tap));
      }
    }
  }
  return matrix.reshape({kernel.size(0) * positions, kernel.size(1) * positions});
}

double dense_norm(const at::Tensor& kernel, const std::vector<int64_t>& input, bool circular) {
  return at::linalg_svdvals(dense_matrix(kernel, input, circular))[0].item<double>();
}

TEST(ConvNorm, EqualsLargestSingularValueOfDenseMatrix) {
  uint64_t seed = 0;
  for (const auto& [kernel_shape, input] : kCases) {
    const auto kernel = gaussian(kernel_shape, ++seed, at::kDouble);
    const auto what = c10::str(at::IntArrayRef(kernel_shape), " on ", at::IntArrayRef(input));
    const double circular = dense_norm(kernel, input, true);
    EXPECT_NEAR(conv_norm(kernel, input), circular,
                rounding(at::kDouble, kernel.numel() * c10::multiply_integers(input)) * circular)
        << what;
    const double zeros = dense_norm(kernel, input, false);
    EXPECT_NEAR(conv_norm(kernel, input, "zeros"), zeros, kConverged * zeros) << what;
  }
}

// Checks that the dense matrix above centers kernels as torch does: with padding (k - 1) / 2 on the left.
TEST(ConvNorm, DenseMatrixMatchesTorchConvolution) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{3, 2, 3, 3}, {2, 3, 4, 2}}) {
    const auto kernel = gaussian(shape, 1, at::kDouble);
    const auto x = gaussian({shape[1], 5, 6}, 2, at::kDouble);
    const auto y = at::conv2d(x.unsqueeze(0), kernel, {}, {1, 1}, "same");
    const auto expected = at::mv(dense_matrix(kernel, {5, 6}, false), x.flatten());
    testing::expect_close(y.flatten(), expected, rounding(at::kDouble, kernel[0].numel()),
                          c10::str(at::IntArrayRef(shape)));
  }
}

// The largest singular values of a smooth single-channel kernel form a cluster, which gets tighter as the
// input gets larger.
TEST(ConvNorm, ConvergesOnClusteredSpectra) {
  const auto blur = at::tensor({1.0, 2.0, 1.0}, at::kDouble) / 4;
  const int64_t n = 96;
  // The tridiagonal Toeplitz matrix of 1 2 1 has eigenvalues 2 + 2 cos(pi j / (n + 1)).
  const double exact = (2 + 2 * std::cos(M_PI / (n + 1))) / 4;
  EXPECT_NEAR(conv_norm(blur.view({1, 1, 3}), {n}, "zeros"), exact, kConverged);
  EXPECT_NEAR(conv_norm(at::outer(blur, blur).view({1, 1, 3, 3}), {n, n}, "zeros"), exact * exact,
              kConverged);
  EXPECT_NEAR(conv_norm(at::outer(blur, blur).view({1, 1, 3, 3}), {n, n}), 1, rounding(at::kDouble, 9));
  // With two identical channels, every singular value has multiplicity two.
  const auto twice =
      at::kron(at::eye(2, at::kDouble).view({2, 2, 1, 1}), at::outer(blur, blur).view({1, 1, 3, 3}));
  EXPECT_NEAR(conv_norm(twice, {n, n}, "zeros"), exact * exact, kConverged);
  // A shift is an isometry except for the elements that it moves out of the input.
  auto shift = at::zeros({1, 1, 3}, at::kDouble);
  shift[0][0][2] = 1;
  EXPECT_NEAR(conv_norm(shift, {8}), 1, rounding(at::kDouble, 8));
  EXPECT_NEAR(conv_norm(shift, {8}, "zeros"), 1, kConverged);
  EXPECT_EQ(conv_norm(shift, {1}, "zeros"), 0);
}

// ||K||_sigma <= ||T_K||_2 <= sqrt(hw) ||K||_sigma if the kernel fits into the input. The norm on the right
// is over complex unit vectors; the relaxed norm is an upper bound of it.
TEST(ConvNorm, SatisfiesPaperBoundsBySpectralNorm) {
  uint64_t seed = 0;
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{4, 3, 3, 3}, {8, 8, 3, 3}, {2, 5, 2, 4}, {6, 6, 5}}) {
    const int64_t taps = c10::multiply_integers(at::IntArrayRef(shape).slice(2));
    const std::vector<int64_t> input(shape.size() - 2, 8);
    std::vector<at::Tensor> kernels{gaussian(shape, ++seed, at::kDouble), at::ones(shape, at::kDouble)};
    std::vector<at::Tensor> vectors;
    for (const auto size : shape) vectors.push_back(gaussian({size}, ++seed, at::kDouble));
    kernels.push_back(testing::outer(vectors));
    for (const auto& kernel : kernels) {
      const auto bounds = spectral_norm(kernel);
      for (const auto* padding : {"circular", "zeros"}) {
        const double norm = conv_norm(kernel, input, padding);
        EXPECT_GE(norm, bounds.lower * (1 - kConverged)) << padding << " " << at::IntArrayRef(shape);
        EXPECT_LE(norm, std::sqrt(taps) * bounds.upper) << padding << " " << at::IntArrayRef(shape);
        // A stronger bound than the theorem: a single output, or a single input, gives an unfolding of K.
        EXPECT_GE(norm, at::linalg_svdvals(unfold(kernel, {0}))[0].item<double>() * (1 - kConverged))
            << padding;
        EXPECT_GE(norm, at::linalg_svdvals(unfold(kernel, {1}))[0].item<double>() * (1 - kConverged))
            << padding;
      }
    }
  }
}

// The upper bound can fail over real unit vectors: a I + b J is sqrt(a^2 + b^2) times a rotation, but
// ||I + i J||_2 = 2.
TEST(ConvNorm, CanExceedBoundByRealSpectralNorm) {
  const auto kernel = at::tensor({1.0, 0.0, 0.0, -1.0, 0.0, 1.0, 1.0, 0.0}, at::kDouble).view({2, 2, 2});
  EXPECT_NEAR(spectral_norm(kernel).lower, 1, kConverged);
  EXPECT_NEAR(conv_norm(kernel, {4}), 2, rounding(at::kDouble, 8));
  EXPECT_NEAR(dense_norm(kernel, {4}, true), 2, rounding(at::kDouble, 64));
  EXPECT_NEAR(relaxed_norm(kernel).upper, std::sqrt(2.0), kConverged);
}

TEST(ConvNorm, IsIndependentOfDtypeAndLayoutAndScalesExactly) {
  const auto kernel = gaussian({3, 4, 3, 3}, 1);
  for (const auto* padding : {"circular", "zeros"}) {
    const double expected = conv_norm(kernel, {6, 6}, padding);
    SCOPED_TRACE(padding);
    auto all = testing::in_other_layouts(kernel);
    all.push_back(kernel.contiguous(at::MemoryFormat::ChannelsLast));
    for (const auto& same : all)
      EXPECT_NEAR(conv_norm(same, {6, 6}, padding), expected, kConverged * expected);
    for (const int exponent : {-100, 100}) {  // about 1e-30 and 1e30
      const double scale = std::ldexp(1.0, exponent);
      EXPECT_DOUBLE_EQ(conv_norm(kernel * scale, {6, 6}, padding), expected * scale);
    }
    for (const auto dtype : {at::kBFloat16, at::kHalf}) {
      const auto low = kernel.to(dtype);
      EXPECT_DOUBLE_EQ(conv_norm(low, {6, 6}, padding), conv_norm(low.to(at::kDouble), {6, 6}, padding));
    }
    EXPECT_EQ(conv_norm(at::zeros({2, 2, 3, 3}), {4, 4}, padding), 0);
    EXPECT_EQ(conv_norm(at::zeros({2, 0, 3, 3}), {4, 4}, padding), 0);
  }
}

TEST(ConvNorm, ThrowsForBadInput) {
  const auto kernel = gaussian({3, 4, 3, 3}, 1);
  expect_error<c10::ValueError>([&] { conv_norm(kernel[0][0], {4}); },
                                "with 1, 2 or 3 spatial modes, got shape [3, 3]");
  expect_error<c10::ValueError>([&] { conv_norm(at::ones({1, 1, 2, 2, 2, 2}), {4, 4, 4, 4}); },
                                "with 1, 2 or 3 spatial modes");
  EXPECT_EQ(conv_norm(kernel, 4), conv_norm(kernel, {4, 4}));
  expect_error<c10::ValueError>([&] { conv_norm(kernel, {4, 4, 4}); }, "expected input sizes of 2 entries");
  expect_error<c10::ValueError>([&] { conv_norm(kernel, 4, "zeros", {2, 2, 2}); },
                                "expected strides of 2 entries");
  expect_error<c10::ValueError>([&] { conv_norm(kernel, 4, "zeros", 1, 0); },
                                "dilations must be at least 1, got [0]");
  expect_error<c10::ValueError>([&] { conv_norm(kernel, {4, 0}); },
                                "input sizes must be at least 1, got [4, 0]");
  expect_error<c10::ValueError>([&] { conv_norm(kernel, {4, 4}, "reflect"); },
                                "padding must be \"circular\" or \"zeros\", got \"reflect\"");
}

}  // namespace
}  // namespace tensorion
