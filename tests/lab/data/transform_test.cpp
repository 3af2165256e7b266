#include "lab/data/transform.h"

#include <map>
#include <set>

#include "tests/lab/data/support.h"

namespace tensorion::lab {
namespace {

using testing::expect_close;
using testing::expect_error;
using testing::noise;

const Normalization kThree{{0.4, 0.5, 0.6}, {0.2, 0.3, 0.1}};

Random stream(int64_t index) { return {11, Random::Purpose::kAugment, 2, index}; }

at::Tensor run(const Transform& transform, const at::Tensor& image, Random random,
               bool channels_last = false) {
  const auto [height, width] = transform.size;
  auto out = at::full({1, image.size(0), height, width}, -99.0F);
  if (channels_last) out = out.contiguous(at::MemoryFormat::ChannelsLast);
  apply(transform, {image.const_data_ptr<uint8_t>(), image.size(0), {image.size(1), image.size(2)}}, random,
        channels_last, out.mutable_data_ptr<float>());
  return out[0];
}

at::Tensor normalize(const at::Tensor& pixels, const Normalization& normalization) {
  const auto mean = at::tensor(normalization.mean, at::kDouble).view({-1, 1, 1});
  const auto std = at::tensor(normalization.std, at::kDouble).view({-1, 1, 1});
  return (pixels.to(at::kDouble) / 255 - mean) / std;
}

// The reference: every padded crop and its mirror image, computed by slicing.
std::vector<at::Tensor> all_padded_crops(const at::Tensor& image, int64_t padding) {
  std::vector<at::Tensor> all;
  const auto padded = at::constant_pad_nd(image, {padding, padding, padding, padding}, 0);
  for (int64_t top = 0; top <= 2 * padding; ++top) {
    for (int64_t left = 0; left <= 2 * padding; ++left) {
      const auto crop = padded.narrow(1, top, image.size(1)).narrow(2, left, image.size(2));
      all.push_back(normalize(crop, kThree));
      all.push_back(normalize(crop.flip(2), kThree));
    }
  }
  return all;
}

TEST(Transform, NormalizesOnlyWithoutAugmentation) {
  for (const bool channels_last : {false, true}) {
    const auto colour = noise({3, 9, 13}, 1);
    expect_close(run({{9, 13}, PaddedCrop{0}, false, kThree}, colour, stream(0), channels_last),
                 normalize(colour, kThree), 1e-6);
    const auto gray = noise({1, 28, 28}, 2);
    const Normalization one{{0.286}, {0.353}};
    expect_close(run({{28, 28}, PaddedCrop{0}, false, one}, gray, stream(0), channels_last),
                 normalize(gray, one), 1e-6);
  }
}

TEST(Transform, PaddedCropsMatchReferenceAndAreUniform) {
  const auto image = noise({3, 7, 10}, 3);
  const int64_t padding = 2;
  const auto expected = all_padded_crops(image, padding);
  const Transform transform{{7, 10}, PaddedCrop{padding}, true, kThree};
  constexpr int64_t kDraws = 4000;
  std::map<size_t, int64_t> seen;
  for (int64_t i = 0; i < kDraws; ++i) {
    const auto out = run(transform, image, stream(i), i % 2 == 0).to(at::kDouble);
    size_t match = expected.size();
    for (size_t k = 0; k < expected.size(); ++k) {
      if ((out - expected[k]).abs().max().item<double>() < 1e-5) match = k;
    }
    ASSERT_LT(match, expected.size()) << "draw " << i << " is no padded crop";
    ++seen[match];
  }
  const double mean = static_cast<double>(kDraws) / static_cast<double>(expected.size());
  EXPECT_EQ(seen.size(), expected.size());
  for (const auto& [which, count] : seen)
    EXPECT_NEAR(static_cast<double>(count), mean, 5 * std::sqrt(mean)) << which;
}

TEST(Transform, PaddingMayExceedTheImage) {
  const auto image = noise({3, 2, 3}, 4);
  const auto expected = all_padded_crops(image, 4);
  const Transform transform{{2, 3}, PaddedCrop{4}, true, kThree};
  for (int64_t i = 0; i < 200; ++i) {
    const auto out = run(transform, image, stream(i)).to(at::kDouble);
    EXPECT_TRUE(std::any_of(expected.begin(), expected.end(), [&](const at::Tensor& crop) {
      return (out - crop).abs().max().item<double>() < 1e-5;
    }));
  }
}

TEST(Transform, MemoryFormatsHaveTheSameValuesBitwise) {
  const auto image = noise({3, 20, 31}, 5);
  for (const Transform& transform : {Transform{{20, 31}, PaddedCrop{4}, true, kThree},
                                     Transform{{16, 12}, RandomResizedCrop{}, true, kThree},
                                     Transform{{16, 12}, CenterCrop{18}, false, kThree}}) {
    for (int64_t i = 0; i < 10; ++i) {
      EXPECT_TRUE(at::equal(run(transform, image, stream(i), false), run(transform, image, stream(i), true)));
    }
  }
}

TEST(Transform, RandomResizedCropsSatisfyTheirBounds) {
  const RandomResizedCrop crop;
  const ImageSize size{300, 400};
  double area_sum = 0;
  std::set<int64_t> tops, lefts;
  constexpr int64_t kDraws = 2000;
  for (int64_t i = 0; i < kDraws; ++i) {
    Random random = stream(i);
    const Box box = random_resized_box(crop, size, random);
    ASSERT_TRUE(box.top >= 0 && box.left >= 0 && box.top + box.size.height <= 300 &&
                box.left + box.size.width <= 400);
    const auto height = static_cast<double>(box.size.height), width = static_cast<double>(box.size.width);
    const double slack = 1 / height + 1 / width;  // both sides are rounded to whole pixels
    const double area = height * width / (300 * 400);
    EXPECT_TRUE(area >= 0.08 * (1 - slack) && area <= 1 + slack) << area;
    EXPECT_TRUE(width / height >= 0.75 * (1 - slack) && width / height <= 4.0 / 3 * (1 + slack))
        << width / height;
    area_sum += area;
    tops.insert(box.top);
    lefts.insert(box.left);
  }
  // A box with area fraction a fits for a fraction -log(a) / (2 log(4/3)) of the aspect ratios, or for all if
  // a <= 9/16. Boxes that do not fit are drawn again.
  double weighted = 0, weights = 0;
  for (double a = 0.08; a < 1; a += 1e-4) {
    const double weight = std::min(1.0, -std::log(a) / (2 * std::log(4.0 / 3)));
    weighted += weight * a;
    weights += weight;
  }
  EXPECT_NEAR(area_sum / kDraws, weighted / weights, 5 * 0.23 / std::sqrt(kDraws));
  EXPECT_GT(tops.size(), 100U);
  EXPECT_GT(lefts.size(), 100U);
}

TEST(Transform, RandomResizedCropsOfThinImagesAreCentered) {
  Random random = stream(0);
  const Box wide = random_resized_box({}, {3, 1000}, random);
  EXPECT_EQ(wide.size, (ImageSize{3, 4}));
  EXPECT_EQ(wide.left, 498);
  const Box tall = random_resized_box({}, {1000, 3}, random);
  EXPECT_EQ(tall.size, (ImageSize{4, 3}));
  EXPECT_EQ(tall.top, 498);
  const Box pixel = random_resized_box({}, {1, 1}, random);
  EXPECT_EQ(pixel.size, (ImageSize{1, 1}));
}

TEST(Transform, ResizedCropsMatchTorch) {
  const auto image = noise({3, 50, 37}, 6);
  const Transform transform{{24, 20}, RandomResizedCrop{}, false, kThree};
  Transform flipping = transform;
  flipping.flip = true;
  int64_t flips = 0;
  for (int64_t i = 0; i < 40; ++i) {
    Random random = stream(i);
    flips += random.coin();
    const bool flip = Random(stream(i)).coin();
    for (const bool may_flip : {false, true}) {
      Random draws = stream(i);
      if (may_flip) draws.coin();
      const Box box = random_resized_box({}, {50, 37}, draws);
      const auto part = image.narrow(1, box.top, box.size.height).narrow(2, box.left, box.size.width);
      auto expected =
          at::_upsample_bilinear2d_aa(part.to(at::kDouble).unsqueeze(0).contiguous(), {24, 20}, false)[0];
      if (may_flip && flip) expected = expected.flip(2);
      expect_close(run(may_flip ? flipping : transform, image, stream(i)), normalize(expected, kThree), 1e-6);
    }
  }
  EXPECT_TRUE(flips > 5 && flips < 35);
}

TEST(Transform, CenterCropMatchesTorch) {
  struct Case {
    int64_t height, width, resized_height, resized_width;
  };
  // The longer side is rounded down to an integer, as in torchvision.
  for (const auto& [height, width, resized_height, resized_width] :
       {Case{50, 37, 43, 32}, Case{37, 50, 32, 43}, Case{64, 64, 32, 32}, Case{8, 9, 32, 36}}) {
    const auto image = noise({3, height, width}, 7);
    const auto whole = at::_upsample_bilinear2d_aa(image.to(at::kDouble).unsqueeze(0),
                                                   {resized_height, resized_width}, false)[0];
    const auto expected =
        whole.narrow(1, (resized_height - 28) / 2, 28).narrow(2, (resized_width - 28) / 2, 28);
    expect_close(run({{28, 28}, CenterCrop{32}, false, kThree}, image, stream(0)),
                 normalize(expected, kThree), 1e-6);
  }
}

TEST(Transform, FlipsBothWaysAndTransposes) {
  const auto image = noise({3, 12, 12}, 9);
  std::set<std::pair<bool, bool>> seen;
  for (int64_t i = 0; i < 40; ++i) {
    Random draws = stream(i);
    const bool flip = draws.coin(), flip_vertical = draws.coin();
    seen.emplace(flip, flip_vertical);
    auto expected = flip ? image.flip(2) : image;
    if (flip_vertical) expected = expected.flip(1);
    Transform transform{{12, 12}, PaddedCrop{0}, true, kThree};
    transform.flip_vertical = true;
    for (const bool channels_last : {false, true}) {
      transform.transpose = false;
      expect_close(run(transform, image, stream(i), channels_last), normalize(expected, kThree), 1e-6);
      transform.transpose = true;
      expect_close(run(transform, image, stream(i), channels_last),
                   normalize(expected.transpose(1, 2), kThree), 1e-6);
    }
  }
  EXPECT_EQ(seen.size(), 4U);
}

TEST(Transform, ResizesWithBicubicInterpolation) {
  const auto image = noise({3, 50, 37}, 7);
  const auto whole =
      at::_upsample_bicubic2d_aa(image.to(at::kDouble).unsqueeze(0), {43, 32}, false)[0].clamp(0, 255);
  Transform transform{{28, 28}, CenterCrop{32}, false, kThree};
  transform.interpolation = Interpolation::kBicubic;
  expect_close(run(transform, image, stream(0)), normalize(whole.narrow(1, 7, 28).narrow(2, 2, 28), kThree),
               1e-6);
}

TEST(Transform, RejectsInvalidInput) {
  const auto image = noise({3, 8, 8}, 8);
  Transform transposed{{8, 9}, CenterCrop{9}, false, kThree};
  transposed.transpose = true;
  expect_error<c10::ValueError>([&] { run(transposed, image, stream(0)); },
                                "only square images can be transposed, got 8 x 9");
  expect_error<c10::ValueError>(
      [&] { run({{8, 9}, PaddedCrop{4}, false, kThree}, image, stream(0)); },
      "[tensorion.data] a padded crop does not resize: expected an image of 8 x 9, got 8 x 8");
  expect_error<c10::ValueError>(
      [&] { run({{8, 8}, PaddedCrop{4}, false, {{0.5}, {0.5}}}, image, stream(0)); },
      "expected a mean and a standard deviation for each of 3 channels, got 1 and 1");
  expect_error<c10::ValueError>(
      [&] { run({{8, 8}, CenterCrop{7}, false, kThree}, image, stream(0)); },
      "the shorter side before the center crop must be at least 8, the longer side of the crop, got 7");
}

}  // namespace
}  // namespace tensorion::lab
