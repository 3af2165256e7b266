#include "lab/data/fashion_mnist.h"

#include "tests/lab/data/support.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;

using testing::expect_error;
using testing::gzip;
using testing::idx;
using testing::label_bytes;
using testing::noise;
using testing::TemporaryFolder;
using testing::write_bytes;

class FashionMnist : public ::testing::Test {
 protected:
  FashionMnist() {
    write("train-images-idx3-ubyte", train_);
    write("train-labels-idx1-ubyte", label_bytes({3, 9, 0, 1}));
    write("t10k-images-idx3-ubyte", test_);
    write("t10k-labels-idx1-ubyte", label_bytes({5, 5}));
  }

  void write(const std::string& name, const at::Tensor& x) {
    write_bytes(folder_ / (name + ".gz"), gzip(idx(x)));
  }

  void expect(const std::string& part) {
    expect_error<FileError>([&] { read_fashion_mnist(folder_.path()); }, part);
  }

  TemporaryFolder folder_;
  at::Tensor train_ = noise({4, 28, 28}, 1);
  at::Tensor test_ = noise({2, 28, 28}, 2);
};

TEST_F(FashionMnist, ReadsImagesAndLabels) {
  EXPECT_TRUE(has_fashion_mnist(folder_.path()));
  // One file is plain; the others are compressed with gzip.
  fs::remove(folder_ / "t10k-images-idx3-ubyte.gz");
  write_bytes(folder_ / "t10k-images-idx3-ubyte", idx(test_));
  const RawSplits splits = read_fashion_mnist(folder_.path());
  EXPECT_TRUE(at::equal(splits.train.pixels, train_.view({4, 1, 28, 28})));
  EXPECT_TRUE(at::equal(splits.test.pixels, test_.view({2, 1, 28, 28})));
  EXPECT_EQ(splits.train.labels, (std::vector<int64_t>{3, 9, 0, 1}));
  EXPECT_EQ(splits.test.labels, (std::vector<int64_t>{5, 5}));
  EXPECT_EQ(splits.classes.size(), 10U);
  EXPECT_EQ(splits.classes[9], "Ankle boot");
}

TEST_F(FashionMnist, RejectsInvalidFiles) {
  EXPECT_FALSE(has_fashion_mnist(folder_ / "elsewhere"));
  write("train-labels-idx1-ubyte", label_bytes({3, 9, 10, 1}));
  expect("train-labels-idx1-ubyte.gz: label 2 must be in [0, 10), got 10");
  write("train-labels-idx1-ubyte", label_bytes({3, 9, 0}));
  expect(
      "train-labels-idx1-ubyte.gz: expected a label for each of the 4 images in "
      "train-images-idx3-ubyte.gz, got 3");
  write("train-images-idx3-ubyte", noise({3, 28, 27}, 3));
  expect("train-images-idx3-ubyte.gz: expected images of 28 x 28 pixels, got 3 of 28 x 27");
  write("train-images-idx3-ubyte", noise({0, 28, 28}, 3));
  expect("train-images-idx3-ubyte.gz: expected images of 28 x 28 pixels, got 0");
  fs::remove(folder_ / "train-images-idx3-ubyte.gz");
  expect("train-images-idx3-ubyte.gz: cannot open the file");
}

}  // namespace
}  // namespace tensorion::lab
