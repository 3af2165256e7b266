#include "lab/data/catalog.h"

#include <cstdlib>

#include "tests/lab/data/support.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;

using testing::expect_error;
using testing::gzip;
using testing::idx;
using testing::jpeg;
using testing::label_bytes;
using testing::noise;
using testing::smooth_image;
using testing::TemporaryFolder;
using testing::write_bytes;

class Catalog : public ::testing::Test {
 protected:
  Catalog() { ::unsetenv("TENSORION_DATA"); }
  ~Catalog() override { ::unsetenv("TENSORION_DATA"); }

  void write_fashion_mnist(const std::string& name) {
    for (const std::string split : {"train", "t10k"}) {
      write_bytes(folder_ / name / (split + "-images-idx3-ubyte.gz"), gzip(idx(noise({40, 28, 28}, 1))));
      std::vector<int64_t> labels;
      for (int64_t i = 0; i < 40; ++i) labels.push_back(i % 10);
      write_bytes(folder_ / name / (split + "-labels-idx1-ubyte.gz"), gzip(idx(label_bytes(labels))));
    }
  }

  // Three images of every class in train and one in val.
  void write_image_folder(const std::string& name, int64_t classes, int64_t height, int64_t width) {
    for (int64_t c = 0; c < classes; ++c) {
      for (const std::string file : {"train/%/0.jpg", "train/%/1.jpg", "train/%/2.jpg", "val/%/0.jpg"}) {
        std::string path = file;
        path.replace(path.find('%'), 1, "class_" + std::to_string(c));
        write_bytes(folder_ / name / path, jpeg(smooth_image(3, height, width, static_cast<double>(c))));
      }
    }
  }

  DatasetSplits load(const std::string& dataset, const std::string& name = "") {
    return load_dataset(dataset, {.folder = folder_ / name});
  }

  TemporaryFolder folder_;
};

void expect_padded_pipeline(const DatasetSplits& spec, ImageSize size) {
  EXPECT_EQ(spec.train_transform.size, size);
  EXPECT_EQ(spec.test_transform.size, size);
  EXPECT_EQ(std::get<PaddedCrop>(spec.train_transform.crop).padding, 4);
  EXPECT_EQ(std::get<PaddedCrop>(spec.test_transform.crop).padding, 0);
  EXPECT_TRUE(spec.train_transform.flip);
  EXPECT_FALSE(spec.test_transform.flip);
}

void expect_resized_pipeline(const DatasetSplits& spec, int64_t size, int64_t shorter_side) {
  EXPECT_EQ(spec.train_transform.size, (ImageSize{size, size}));
  EXPECT_EQ(spec.test_transform.size, (ImageSize{size, size}));
  EXPECT_TRUE(std::holds_alternative<RandomResizedCrop>(spec.train_transform.crop));
  EXPECT_EQ(std::get<CenterCrop>(spec.test_transform.crop).shorter_side, shorter_side);
  EXPECT_TRUE(spec.train_transform.flip);
  EXPECT_FALSE(spec.test_transform.flip);
}

TEST_F(Catalog, FindsDataInFolderOrNamedSubfolder) {
  write_fashion_mnist("all/fashion-mnist");
  for (const char* given : {"all", "all/fashion-mnist"}) {
    const auto spec = load("fashion-mnist", given);
    EXPECT_EQ(spec.folder, folder_ / "all/fashion-mnist");
    EXPECT_EQ(spec.train.count(), 40);
    EXPECT_EQ(spec.test.count(), 40);
    EXPECT_EQ(spec.train.channels, 1);
    EXPECT_EQ(spec.classes.size(), 10U);
    expect_padded_pipeline(spec, {28, 28});
  }
  // An explicit folder takes precedence over TENSORION_DATA.
  ::setenv("TENSORION_DATA", (folder_ / "all").c_str(), 1);
  EXPECT_EQ(load_dataset("fashion-mnist").folder, folder_ / "all/fashion-mnist");
  expect_error<std::runtime_error>([&] { load("fashion-mnist", "empty"); }, "not found");
}

TEST_F(Catalog, FindsFoldersOfOriginalArchives) {
  std::string records(3073, '\1');
  for (const char* file :
       {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
    write_bytes(folder_ / "cifar-10-batches-bin" / (std::string(file) + ".bin"), records);
  }
  const auto ten = load("cifar10");
  EXPECT_EQ(ten.folder, folder_ / "cifar-10-batches-bin");
  EXPECT_EQ(ten.train.count(), 5);
  expect_padded_pipeline(ten, {32, 32});
  EXPECT_NEAR(ten.train_transform.normalization.mean[0], 0.4914, 1e-4);

  std::string names;
  for (int i = 0; i < 100; ++i) names += "name\n";
  write_bytes(folder_ / "cifar-100-binary/fine_label_names.txt", names);
  write_bytes(folder_ / "cifar-100-binary/train.bin", records + '\1');
  write_bytes(folder_ / "cifar-100-binary/test.bin", records + '\1');
  EXPECT_EQ(load("cifar100").classes.size(), 100U);

  write_image_folder("imagenette2-320", 10, 80, 100);
  const auto imagenette = load("imagenette");
  EXPECT_EQ(imagenette.train.count(), 30);
  expect_resized_pipeline(imagenette, 224, 256);
}

TEST_F(Catalog, TinyImagenetMayHaveFewerClasses) {
  const fs::path folder = folder_ / "tiny-imagenet-200";
  write_bytes(folder / "wnids.txt", "n01\n");
  write_bytes(folder / "train/n01/images/a.JPEG", jpeg(smooth_image(1, 64, 64)));
  write_bytes(folder / "val/images/b.JPEG", jpeg(smooth_image(3, 64, 64)));
  write_bytes(folder / "val/val_annotations.txt", "b.JPEG\tn01\t0\t0\t1\t1\n");
  const auto spec = load("tiny-imagenet");
  EXPECT_EQ(spec.train.count(), 1);
  EXPECT_TRUE(spec.train.pixels.defined());
  expect_padded_pipeline(spec, {64, 64});
  write_bytes(folder / "val/images/b.JPEG", jpeg(smooth_image(3, 32, 32)));
  expect_error<FileError>([&] { load("tiny-imagenet"); }, "b.JPEG: expected an image of 64 x 64");
}

TEST_F(Catalog, CifarMayBeAnImageFolder) {
  write_image_folder("", 10, 32, 32);
  const auto spec = load("cifar10");
  EXPECT_EQ(spec.train.count(), 30);
  EXPECT_EQ(spec.classes[3], "class_3");
  EXPECT_EQ(spec.train.labels[10].item<int64_t>(), 3);
  expect_padded_pipeline(spec, {32, 32});
  fs::remove_all(folder_ / "train/class_9");
  fs::remove_all(folder_ / "val/class_9");
  expect_error<FileError>([&] { load("cifar10"); }, ": cifar10 must have 10 classes, got 9");
}

TEST_F(Catalog, SmallImagesKeepTheirSize) {
  write_image_folder("", 2, 20, 64);
  const auto spec = load("imagefolder");
  EXPECT_TRUE(spec.train.pixels.defined());
  expect_padded_pipeline(spec, {20, 64});
  write_bytes(folder_ / "train/class_1/2.jpg", jpeg(smooth_image(3, 20, 63)));
  expect_error<FileError>([&] { load("imagefolder"); }, "class_1/2.jpg: expected an image of 20 x 64");
  // An explicit size resizes all images to that size.
  expect_resized_pipeline(load_dataset("imagefolder", {.folder = folder_.path(), .image_size = 28}), 28, 32);
}

TEST_F(Catalog, ResizesToAnyRequestedSize) {
  write_image_folder("", 10, 32, 32);
  expect_padded_pipeline(load_dataset("imagefolder", {.folder = folder_.path(), .image_size = 32}), {32, 32});
  expect_padded_pipeline(load_dataset("cifar10", {.folder = folder_.path(), .image_size = 32}), {32, 32});
  const auto larger = load_dataset("cifar10", {.folder = folder_.path(), .image_size = 224});
  EXPECT_TRUE(larger.train.pixels.defined());
  expect_resized_pipeline(larger, 224, 256);
}

TEST_F(Catalog, LargeImagesAreResized) {
  write_image_folder("", 2, 50, 65);
  write_bytes(folder_ / "train/class_1/2.jpg", jpeg(smooth_image(3, 20, 63)));
  const auto spec = load("imagefolder");
  EXPECT_FALSE(spec.train.pixels.defined());
  EXPECT_FALSE(spec.train.files->front().bytes.empty());
  expect_resized_pipeline(spec, 224, 256);
  const auto on_disk = load_dataset("imagefolder", {.folder = folder_.path(), .memory_limit = 0});
  EXPECT_TRUE(on_disk.train.files->front().bytes.empty());
}

TEST_F(Catalog, ResizedImagesFollowTheModelsConfiguration) {
  write_image_folder("", 2, 50, 65);
  const PretrainedPreprocessing vit{{{0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}}, Interpolation::kBicubic, 0.9};
  const auto spec = load_dataset(
      "imagefolder", {.folder = folder_.path(), .flip = "both", .transpose = true, .resized = vit});
  expect_resized_pipeline(spec, 224, 248);  // timm rounds 224 / 0.9 down.
  for (const auto& transform : {spec.train_transform, spec.test_transform}) {
    EXPECT_EQ(transform.normalization.mean, vit.normalization.mean);
    EXPECT_EQ(transform.interpolation, Interpolation::kBicubic);
    EXPECT_TRUE(transform.transpose);
  }
  EXPECT_TRUE(spec.train_transform.flip_vertical);
  EXPECT_FALSE(spec.test_transform.flip_vertical);
}

// The configuration is made for three channels.
TEST_F(Catalog, GrayImagesKeepTheirOwnNormalization) {
  write_fashion_mnist("");
  const PretrainedPreprocessing vit{{{0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}}, Interpolation::kBicubic, 0.9};
  const auto spec =
      load_dataset("fashion-mnist", {.folder = folder_.path(), .image_size = 224, .resized = vit});
  EXPECT_EQ(spec.train_transform.normalization.mean.size(), 1U);
}

TEST_F(Catalog, LimitsSelectBalancedSeededSubset) {
  write_fashion_mnist("");
  const auto spec =
      load_dataset("fashion-mnist", {.folder = folder_.path(), .limit_train = 20, .limit_test = 10});
  EXPECT_EQ(spec.train.count(), 20);
  EXPECT_EQ(spec.test.count(), 10);
  EXPECT_TRUE(at::equal(at::bincount(spec.train.labels), at::full({10}, 2, at::kLong)));
  EXPECT_TRUE(at::equal(at::bincount(spec.test.labels), at::full({10}, 1, at::kLong)));
  const auto again = load_dataset("fashion-mnist", {.folder = folder_.path(), .limit_train = 20});
  EXPECT_TRUE(at::equal(spec.train.pixels, again.train.pixels));
  const auto other =
      load_dataset("fashion-mnist", {.folder = folder_.path(), .limit_train = 20, .subset_seed = 1});
  EXPECT_FALSE(at::equal(spec.train.pixels, other.train.pixels));
  expect_error<c10::ValueError>(
      [&] { load_dataset("fashion-mnist", {.folder = folder_.path(), .limit_test = 0}); },
      "must be at least 1, got 0");
}

TEST_F(Catalog, ExplainsMissingData) {
  const auto message = [&](const std::string& name, const fs::path& folder) -> std::string {
    try {
      load_dataset(name, {.folder = folder});
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  const auto expect_parts = [](const std::string& text, const std::vector<std::string>& parts) {
    for (const auto& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\nin:\n" << text;
  };
  expect_parts(message("cifar10", folder_.path()),
               {"data set cifar10 not found", "searched: " + folder_.path().string() + " (--data)",
                "data_batch_1.bin ... data_batch_5.bin and test_batch.bin", "or: train/<class>/*.jpg",
                "scripts/get_data.sh cifar10"});
  expect_parts(message("fashion-mnist", folder_ / "gone"),
               {"gone (--data), which does not exist", "train-images-idx3-ubyte", "dataset-fashion-mnist"});
  expect_parts(message("imagenette", ""),
               {"no folder, because neither --data DIR nor TENSORION_DATA is set"});
  ::setenv("TENSORION_DATA", folder_.path().c_str(), 1);
  expect_parts(message("tiny-imagenet", ""),
               {folder_.path().string() + " (TENSORION_DATA)", "val_annotations.txt"});
}

TEST_F(Catalog, RejectsInvalidOptions) {
  expect_error<c10::ValueError>(
      [] { load_dataset("cifar"); },
      "[tensorion.data] the data set must be one of fashion-mnist, cifar10, cifar100, "
      "tiny-imagenet, imagenette, imagefolder, got cifar");
  expect_error<c10::ValueError>([] { load_dataset("cifar10", {.image_size = 0}); },
                                "the image size must be at least 1, got 0");
  EXPECT_EQ(dataset_names().size(), 6U);
}

TEST_F(Catalog, FindsCompleteFashionMnistOfDebian) {
  if (!fs::exists("/usr/share/datasets/fashion-mnist"))
    GTEST_SKIP() << "package dataset-fashion-mnist not installed";
  const auto spec = load_dataset("fashion-mnist");
  EXPECT_EQ(spec.train.count(), 60000);
  EXPECT_EQ(spec.test.count(), 10000);
  EXPECT_TRUE(at::equal(at::bincount(spec.train.labels), at::full({10}, 6000, at::kLong)));
  // The normalization matches the mean and standard deviation of the images.
  const auto pixels = spec.train.pixels.to(at::kFloat) / 255;
  EXPECT_NEAR(pixels.mean().item<double>(), spec.train_transform.normalization.mean[0], 1e-4);
  EXPECT_NEAR(pixels.std().item<double>(), spec.train_transform.normalization.std[0], 1e-4);
}

}  // namespace
}  // namespace tensorion::lab
