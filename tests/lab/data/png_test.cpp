#include "lab/data/png.h"

#include <gtest/gtest.h>

#include <vector>

#include "lab/io/file.h"
#include "tests/support.h"

namespace tensorion::lab {
namespace {

using tensorion::testing::expect_error;

constexpr int64_t kWidth = 9, kHeight = 8;

// The images that tests/fuzz/make_corpus.py creates.
std::string bytes_of(const std::string& name) { return read_file(TENSORION_CORPUS_DIR "/png/" + name); }

uint8_t value_of(int64_t row, int64_t col, int64_t channel) {
  return static_cast<uint8_t>((row * 9 + col * (5 + channel)) % 256);
}

// The value of the image at a pixel and a channel of RGB.
using Value = uint8_t (*)(int64_t row, int64_t col, int64_t channel);

struct Case {
  const char* name;
  Value value;
};

class Png : public ::testing::TestWithParam<Case> {};

TEST_P(Png, DecodesToRgb) {
  const auto bytes = bytes_of(GetParam().name);
  PngDecoder decoder(bytes, "x.png");
  ASSERT_EQ(decoder.size().height, kHeight);
  ASSERT_EQ(decoder.size().width, kWidth);
  std::vector<uint8_t> pixels(3 * kHeight * kWidth);
  std::move(decoder).decode(pixels.data());
  for (int64_t c = 0; c < 3; ++c) {
    for (int64_t y = 0; y < kHeight; ++y) {
      for (int64_t x = 0; x < kWidth; ++x) {
        ASSERT_EQ(pixels[(c * kHeight + y) * kWidth + x], GetParam().value(y, x, c))
            << "channel " << c << ", row " << y << ", column " << x;
      }
    }
  }
}

uint8_t gray(int64_t y, int64_t x, int64_t) { return value_of(y, x, 0); }
uint8_t bilevel(int64_t y, int64_t x, int64_t) { return value_of(y, x, 0) % 2 == 0 ? 0 : 255; }
uint8_t palette(int64_t y, int64_t x, int64_t c) {
  return static_cast<uint8_t>((value_of(y, x, 0) % 4 * 3 + c) * 10);
}

INSTANTIATE_TEST_SUITE_P(All, Png,
                         ::testing::Values(Case{"colour", value_of}, Case{"gray", gray},
                                           Case{"bilevel", bilevel}, Case{"palette", palette},
                                           Case{"transparent_gray", gray}, Case{"transparent", value_of},
                                           Case{"deep", value_of}, Case{"interlaced", value_of}),
                         [](const auto& info) { return info.param.name; });

class DamagedPng : public ::testing::TestWithParam<const char*> {};

TEST_P(DamagedPng, IsRejected) {
  const auto bytes = bytes_of(GetParam());
  expect_error<FileError>(
      [&] {
        PngDecoder decoder(bytes, "some/x.png");
        std::vector<uint8_t> pixels(3 * kHeight * kWidth);
        ASSERT_EQ(decoder.size().height, kHeight);
        std::move(decoder).decode(pixels.data());
      },
      "some/x.png: not a valid PNG image: ");
}

INSTANTIATE_TEST_SUITE_P(All, DamagedPng, ::testing::Values("truncated", "huge", "wrong_checksum"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tensorion::lab
