#include "lab/data/jpeg.h"

#include "tests/lab/data/support.h"

namespace tensorion::lab {
namespace {

using testing::expect_error;
using testing::jpeg;
using testing::smooth_image;

at::Tensor decode(const std::string& bytes) {
  JpegDecoder decoder(bytes, "some/file.jpg");
  auto out = at::empty({3, decoder.size().height, decoder.size().width}, at::kByte);
  std::move(decoder).decode(out.mutable_data_ptr<uint8_t>());
  return out;
}

// The largest difference between two images, in gray levels.
int64_t distance(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kLong) - b.to(at::kLong)).abs().max().item<int64_t>();
}

TEST(Jpeg, DecodesColorImages) {
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{40, 25}, {1, 1}, {7, 100}}) {
    const auto image = smooth_image(3, height, width);
    const auto decoded = decode(jpeg(image));
    ASSERT_EQ(decoded.sizes(), image.sizes());
    EXPECT_LE(distance(decoded, image), 3);  // rounding of colors and coefficients
  }
}

TEST(Jpeg, DecodesGrayToThreeEqualChannels) {
  const auto image = smooth_image(1, 30, 20);
  const auto decoded = decode(jpeg(image));
  EXPECT_LE(distance(decoded, image.expand({3, 30, 20})), 1);
  EXPECT_TRUE(at::equal(decoded[0], decoded[1]) && at::equal(decoded[0], decoded[2]));
}

TEST(Jpeg, ConvertsCmyk) {
  const auto inks = smooth_image(4, 30, 20);
  for (const bool adobe : {true, false}) {
    // Adobe's files store 255 - ink.
    const auto light = adobe ? inks.to(at::kDouble) : 255 - inks.to(at::kDouble);
    const auto expected = (light.slice(0, 0, 3) * light[3] / 255).round();
    EXPECT_LE(distance(decode(jpeg(inks, adobe)), expected), 3) << adobe;
  }
}

TEST(Jpeg, RejectsEveryTruncation) {
  const std::string bytes = jpeg(smooth_image(3, 16, 16));
  for (size_t size = 0; size < bytes.size(); ++size) {
    expect_error<FileError>([&] { decode(bytes.substr(0, size)); },
                            "[tensorion.data] some/file.jpg: not a valid JPEG image: ");
  }
}

TEST(Jpeg, CorruptBytesDoNotCrash) {
  const std::string good = jpeg(smooth_image(3, 16, 16));
  int refused = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0xff);
    try {
      decode(bad);
    } catch (const FileError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

// Some images of ImageNet contain such bytes, and other decoders accept them.
TEST(Jpeg, SkipsStrayBytesBetweenSegments) {
  const std::string bytes = jpeg(smooth_image(3, 16, 16));
  EXPECT_TRUE(at::equal(decode(bytes.substr(0, 20) + "stray" + bytes.substr(20)), decode(bytes)));
}

TEST(Jpeg, RejectsOtherFiles) {
  expect_error<FileError>([] { decode("\x89PNG\r\n\x1a\n and so on"); },
                          "some/file.jpg: not a valid JPEG image: Not a JPEG file: starts with 0x89 0x50");
  expect_error<FileError>([] { decode(""); }, "not a valid JPEG image: Empty input file");
  std::string huge = jpeg(smooth_image(3, 16, 16));
  const size_t frame = huge.find("\xff\xc0");
  huge.replace(frame + 5, 4, "\xf0\xf0\xf0\xf0");
  expect_error<FileError>([&] { decode(huge); },
                          "expected an image of at most 134217728 pixels, got 61680 x 61680 pixels");
}

// Regression test: a header of a few bytes caused an allocation of 400 MB.
TEST(Jpeg, RejectsHeadersTooLargeForTheFile) {
  std::string huge = jpeg(smooth_image(3, 16, 16));
  huge.replace(huge.find("\xff\xc0") + 5, 4, std::string("\x2d\0\x2d\0", 4));
  expect_error<FileError>(
      [&] { decode(huge); },
      "an image of 11520 x 11520 pixels does not fit into a file of " + std::to_string(huge.size()));
  EXPECT_EQ(decode(jpeg(at::zeros({1, 3000, 3000}, at::kByte))).size(1), 3000);  // the smallest possible file
}

// Each scan of a few bytes can take as long as decoding the whole image.
TEST(Jpeg, LimitsNumberOfScans) {
  const auto image = smooth_image(1, 16, 16);
  const auto with_scans = [&](int count) {
    std::vector<jpeg_scan_info> scans{
        {.comps_in_scan = 1, .component_index = {0}, .Ss = 0, .Se = 0, .Ah = 0, .Al = 0}};
    // Each scan has one coefficient, first without its last bit.
    for (const int bit : {1, 0}) {
      for (int k = 1; k < 64; ++k) {
        scans.push_back({.comps_in_scan = 1,
                         .component_index = {0},
                         .Ss = k,
                         .Se = k,
                         .Ah = bit == 1 ? 0 : 1,
                         .Al = bit});
      }
    }
    scans.resize(count);
    return jpeg(image, true, scans);
  };
  EXPECT_LE(distance(decode(with_scans(100)), image.expand({3, 16, 16})), 20);
  expect_error<FileError>([&] { decode(with_scans(101)); }, "not a valid JPEG image: more than 100 scans");
}

}  // namespace
}  // namespace tensorion::lab
