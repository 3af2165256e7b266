#include "lab/data/resample.h"

#include "tests/lab/data/support.h"

namespace tensorion::lab {
namespace {

using testing::expect_close;
using testing::noise;

at::Tensor resample(const at::Tensor& image, const Box& crop, ImageSize resized, const Box& window,
                    Interpolation interpolation = Interpolation::kBilinear) {
  auto out = at::full({image.size(0), window.size.height, window.size.width}, -1.0F);
  resample(
      {image.const_data_ptr<uint8_t>(), image.size(0), {image.size(1), image.size(2)}}, crop, resized, window,
      [&](int64_t c, int64_t y, const float* row) {
        std::copy_n(row, window.size.width, out[c][y].mutable_data_ptr<float>());
      },
      interpolation);
  return out;
}

// Torch's interpolation of the crop with antialiasing, in float64.
at::Tensor reference(const at::Tensor& image, const Box& crop, ImageSize resized, const Box& window,
                     Interpolation interpolation) {
  const auto part = image.narrow(1, crop.top, crop.size.height).narrow(2, crop.left, crop.size.width);
  const auto exact = part.to(at::kDouble).unsqueeze(0).contiguous();
  const std::vector<int64_t> size{resized.height, resized.width};
  const auto whole = interpolation == Interpolation::kBicubic
                         ? at::_upsample_bicubic2d_aa(exact, size, /*align_corners=*/false)[0].clamp(0, 255)
                         : at::_upsample_bilinear2d_aa(exact, size, /*align_corners=*/false)[0];
  return whole.narrow(1, window.top, window.size.height).narrow(2, window.left, window.size.width);
}

TEST(Resample, MatchesAntialiasedTorch) {
  struct Case {
    ImageSize image;
    Box crop;
    ImageSize resized;
    Box window;
  };
  const std::vector<Case> cases{
      {{30, 40}, {0, 0, {30, 40}}, {30, 40}, {0, 0, {30, 40}}},   // unchanged
      {{30, 40}, {0, 0, {30, 40}}, {12, 9}, {0, 0, {12, 9}}},     // downsampling
      {{30, 40}, {0, 0, {30, 40}}, {64, 77}, {0, 0, {64, 77}}},   // upsampling
      {{30, 40}, {0, 0, {30, 40}}, {64, 7}, {0, 0, {64, 7}}},     // both
      {{30, 40}, {5, 11, {20, 13}}, {16, 16}, {0, 0, {16, 16}}},  // a crop
      {{30, 40}, {0, 0, {30, 40}}, {24, 32}, {4, 8, {16, 16}}},   // a window in the middle
      {{30, 40}, {7, 9, {1, 1}}, {5, 5}, {0, 0, {5, 5}}},         // one pixel
      {{97, 300}, {2, 40, {90, 211}}, {1, 1}, {0, 0, {1, 1}}},    // to one pixel
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [size, crop, resized, window] = cases[i];
    const auto image = noise({3, size.height, size.width}, i);
    for (const auto interpolation : {Interpolation::kBilinear, Interpolation::kBicubic}) {
      const bool is_bicubic = interpolation == Interpolation::kBicubic;
      // Sums of a few float32 terms of up to 255.
      expect_close(resample(image, crop, resized, window, interpolation),
                   reference(image, crop, resized, window, interpolation), 1e-6,
                   (is_bicubic ? "bicubic, case " : "bilinear, case ") + std::to_string(i));
    }
  }
}

TEST(Resample, PreservesConstantImages) {
  const auto image = at::full({1, 50, 70}, 200, at::kByte);
  const auto out = resample(image, {3, 1, {41, 66}}, {17, 90}, {0, 0, {17, 90}});
  expect_close(out, at::full({1, 17, 90}, 200.0), 1e-6);
}

}  // namespace
}  // namespace tensorion::lab
