#include "lab/data/cifar.h"

#include "tests/lab/data/support.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;

using testing::bytes_of;
using testing::expect_error;
using testing::label_bytes;
using testing::noise;
using testing::TemporaryFolder;
using testing::write_bytes;

// Records of the given label bytes (N x 1 or N x 2) and pixels (N x 3 x 32 x 32).
std::string records(const std::vector<std::vector<int64_t>>& labels, const at::Tensor& pixels) {
  std::string out;
  for (size_t i = 0; i < labels.size(); ++i) {
    out += bytes_of(label_bytes(labels[i])) + bytes_of(pixels[static_cast<int64_t>(i)]);
  }
  return out;
}

TEST(Cifar, ReadsCifar10) {
  const TemporaryFolder folder;
  EXPECT_FALSE(has_cifar10(folder.path()));
  const auto pixels = noise({12, 3, 32, 32}, 1);
  for (int64_t batch = 0; batch < 5; ++batch) {
    write_bytes(folder / ("data_batch_" + std::to_string(batch + 1) + ".bin"),
                records({{batch}, {9 - batch}}, pixels.slice(0, 2 * batch)));
  }
  write_bytes(folder / "test_batch.bin", records({{7}, {2}}, pixels.slice(0, 10)));
  EXPECT_TRUE(has_cifar10(folder.path()));
  const RawSplits splits = read_cifar10(folder.path());
  EXPECT_TRUE(at::equal(splits.train.pixels, pixels.slice(0, 0, 10)));
  EXPECT_TRUE(at::equal(splits.test.pixels, pixels.slice(0, 10)));
  EXPECT_EQ(splits.train.labels, (std::vector<int64_t>{0, 9, 1, 8, 2, 7, 3, 6, 4, 5}));
  EXPECT_EQ(splits.test.labels, (std::vector<int64_t>{7, 2}));
  EXPECT_EQ(splits.classes[1], "automobile");

  const auto expect = [&](const std::string& part) {
    expect_error<FileError>([&] { read_cifar10(folder.path()); }, part);
  };
  write_bytes(folder / "test_batch.bin", records({{7}, {10}}, pixels));
  expect("test_batch.bin: the label in byte 0 of record 1 must be in [0, 10), got 10");
  write_bytes(folder / "data_batch_4.bin", records({{7}, {1}}, pixels).substr(0, 6000));
  expect("data_batch_4.bin: expected a whole number of records of 3073 bytes, got 6000 bytes");
  write_bytes(folder / "data_batch_4.bin", "");
  expect("data_batch_4.bin: expected a whole number of records of 3073 bytes, got 0 bytes");
  fs::remove(folder / "data_batch_3.bin");
  expect("data_batch_3.bin: cannot open the file");
}

TEST(Cifar, ReadsFineLabelsOfCifar100) {
  const TemporaryFolder folder;
  const auto pixels = noise({3, 3, 32, 32}, 2);
  std::string names;
  for (int i = 0; i < 100; ++i) names += "name_" + std::to_string(i) + "\n";
  write_bytes(folder / "fine_label_names.txt", names + "\n");
  write_bytes(folder / "train.bin", records({{19, 99}, {0, 4}}, pixels));
  write_bytes(folder / "test.bin", records({{3, 50}}, pixels.slice(0, 2)));
  EXPECT_TRUE(has_cifar100(folder.path()));
  const RawSplits splits = read_cifar100(folder.path());
  EXPECT_TRUE(at::equal(splits.train.pixels, pixels.slice(0, 0, 2)));
  EXPECT_TRUE(at::equal(splits.test.pixels, pixels.slice(0, 2)));
  EXPECT_EQ(splits.train.labels, (std::vector<int64_t>{99, 4}));
  EXPECT_EQ(splits.test.labels, (std::vector<int64_t>{50}));
  EXPECT_EQ(splits.classes.size(), 100U);
  EXPECT_EQ(splits.classes[42], "name_42");

  const auto expect = [&](const std::string& part) {
    expect_error<FileError>([&] { read_cifar100(folder.path()); }, part);
  };
  write_bytes(folder / "train.bin", records({{20, 99}}, pixels));
  expect("train.bin: the label in byte 0 of record 0 must be in [0, 20), got 20");
  write_bytes(folder / "train.bin", records({{1, 100}}, pixels));
  expect("train.bin: the label in byte 1 of record 0 must be in [0, 100), got 100");
  write_bytes(folder / "train.bin", records({{1}}, pixels));
  expect("train.bin: expected a whole number of records of 3074 bytes, got 3073 bytes");
  write_bytes(folder / "fine_label_names.txt", "apple\n");
  expect("fine_label_names.txt: expected the names of 100 classes, got 1");
}

}  // namespace
}  // namespace tensorion::lab
