#include "lab/data/dataset.h"

#include <ATen/Parallel.h>

#include "tests/lab/data/support.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;

using testing::expect_error;
using testing::jpeg;
using testing::noise;
using testing::smooth_image;
using testing::TemporaryFolder;
using testing::write_bytes;

constexpr int64_t kPlenty = int64_t{1} << 40;

class Images : public ::testing::Test {
 protected:
  Images() {
    for (int64_t i = 0; i < 7; ++i) {
      images_.push_back(smooth_image(3, 16, 24, static_cast<double>(i)));
      split_.files.push_back(folder_ / (std::to_string(i) + ".jpg"));
      split_.labels.push_back(i % 3);
      write_bytes(split_.files.back(), jpeg(images_.back()));
    }
  }

  void expect_images(const Dataset& dataset) {
    EXPECT_EQ(dataset.channels, 3);
    EXPECT_EQ(dataset.count(), 7);
    std::vector<uint8_t> buffer;
    for (int64_t i = 0; i < 7; ++i) {
      const ImageView view = dataset.image(i, buffer);
      EXPECT_EQ(view.size, (ImageSize{16, 24}));
      const auto pixels = at::from_blob(const_cast<uint8_t*>(view.pixels), {3, 16, 24}, at::kByte);
      EXPECT_LE((pixels.to(at::kLong) - images_[i].to(at::kLong)).abs().max().item<int64_t>(), 3);
      EXPECT_EQ(dataset.labels[i].item<int64_t>(), i % 3);
    }
  }

  TemporaryFolder folder_;
  std::vector<at::Tensor> images_;
  RawSplit split_;
};

TEST_F(Images, AreKeptDecodedEncodedOrOnDiskByMemoryLimit) {
  const int64_t decoded_bytes = 7 * 3 * 16 * 24;
  int64_t encoded_bytes = 0;
  for (const auto& file : split_.files) encoded_bytes += static_cast<int64_t>(fs::file_size(file));
  ASSERT_GT(encoded_bytes, 100);

  const Dataset decoded = make_dataset(split_, ImageSize{16, 24}, decoded_bytes);
  EXPECT_TRUE(decoded.pixels.defined());
  expect_images(decoded);
  EXPECT_FALSE(make_dataset(split_, ImageSize{16, 24}, decoded_bytes - 1).pixels.defined());

  const Dataset encoded = make_dataset(split_, std::nullopt, encoded_bytes);
  EXPECT_FALSE(encoded.pixels.defined());
  EXPECT_FALSE(encoded.files->front().bytes.empty());
  expect_images(encoded);

  const Dataset on_disk = make_dataset(split_, std::nullopt, encoded_bytes - 1);
  EXPECT_TRUE(on_disk.files->front().bytes.empty());
  expect_images(on_disk);
}

TEST_F(Images, DoNotDependOnNumberOfThreads) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = make_dataset(split_, ImageSize{16, 24}, kPlenty).pixels;
  at::set_num_threads(4);
  const auto four = make_dataset(split_, ImageSize{16, 24}, kPlenty).pixels;
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one, four));
}

TEST_F(Images, KeepTheirDifferentSizes) {
  write_bytes(split_.files[4], jpeg(smooth_image(1, 30, 9)));
  std::vector<uint8_t> buffer;
  for (const int64_t limit : {int64_t{0}, kPlenty}) {
    const Dataset dataset = make_dataset(split_, std::nullopt, limit);
    EXPECT_EQ(dataset.image(4, buffer).size, (ImageSize{30, 9}));
    EXPECT_EQ(dataset.image(4, buffer).channels, 3);
    EXPECT_EQ(dataset.image(3, buffer).size, (ImageSize{16, 24}));
  }
}

TEST_F(Images, AreRejectedIfInvalid) {
  const std::string name = split_.files[4].string();
  std::vector<uint8_t> buffer;
  const std::string good = read_file(split_.files[4]);
  write_bytes(split_.files[4], jpeg(smooth_image(3, 24, 16)));
  const std::string wrong_size = name + ": expected an image of 16 x 24 pixels (height x width), got 24 x 16";
  expect_error<FileError>([&] { make_dataset(split_, ImageSize{16, 24}, kPlenty); }, wrong_size);
  // The limit allows the files but not the pixels; loading still detects the wrong size.
  const int64_t tight = 7 * 3 * 16 * 24 - 1;
  expect_error<FileError>([&] { make_dataset(split_, ImageSize{16, 24}, tight); }, wrong_size);
  expect_error<FileError>([&] { make_dataset(split_, ImageSize{16, 24}, 0).image(4, buffer); }, wrong_size);

  write_bytes(split_.files[4], good.substr(0, good.size() - 20));
  expect_error<FileError>([&] { make_dataset(split_, ImageSize{16, 24}, kPlenty); },
                          name + ": not a valid JPEG");
  expect_error<FileError>([&] { make_dataset(split_, std::nullopt, 0).image(4, buffer); },
                          name + ": not a valid");
  write_bytes(split_.files[4], "");
  expect_error<FileError>([&] { make_dataset(split_, std::nullopt, kPlenty); }, name + ": not a valid JPEG");
  fs::remove(split_.files[4]);
  expect_error<FileError>([&] { make_dataset(split_, std::nullopt, kPlenty); },
                          name + ": cannot read the file");
  expect_error<FileError>([&] { make_dataset(split_, ImageSize{16, 24}, kPlenty); }, name + ": cannot open");
}

TEST(Dataset, DecodedImagesAreViews) {
  RawSplit split;
  split.pixels = noise({3, 1, 4, 5}, 1);
  split.labels = {1, 0, 2};
  const Dataset dataset = make_dataset(split, ImageSize{4, 5}, 0);
  EXPECT_EQ(dataset.channels, 1);
  std::vector<uint8_t> buffer;
  EXPECT_EQ(dataset.image(2, buffer).pixels, split.pixels.const_data_ptr<uint8_t>() + 40);
  EXPECT_TRUE(buffer.empty());
}

}  // namespace
}  // namespace tensorion::lab
