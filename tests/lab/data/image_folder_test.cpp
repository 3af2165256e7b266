#include "lab/data/image_folder.h"

#include "tests/lab/data/support.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;

using testing::expect_error;
using testing::TemporaryFolder;
using testing::write_bytes;

TEST(ImageFolder, ListsImagesInSortedOrder) {
  const TemporaryFolder folder;
  EXPECT_FALSE(has_image_folder(folder.path()));
  for (const char* file :
       {"train/dog/2.jpg", "train/dog/10.JPEG", "train/cat/b.jpeg", "train/cat/a.JPG", "test/cat/x.jpg",
        "test/dog/y.jpg", "train/.cache/z", "train/dog/.DS_Store", "train/notes.txt"}) {
    write_bytes(folder / file, "");
  }
  EXPECT_TRUE(has_image_folder(folder.path()));
  const RawSplits splits = read_image_folder(folder.path());
  EXPECT_EQ(splits.classes, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(splits.train.files,
            (std::vector<fs::path>{folder / "train/cat/a.JPG", folder / "train/cat/b.jpeg",
                                   folder / "train/dog/10.JPEG", folder / "train/dog/2.jpg"}));
  EXPECT_EQ(splits.train.labels, (std::vector<int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(splits.test.files, (std::vector<fs::path>{folder / "test/cat/x.jpg", folder / "test/dog/y.jpg"}));
  EXPECT_EQ(splits.test.labels, (std::vector<int64_t>{0, 1}));

  // If there are both, val is used.
  write_bytes(folder / "val/cat/v.jpg", "");
  write_bytes(folder / "val/dog/w.jpg", "");
  EXPECT_EQ(read_image_folder(folder.path()).test.files,
            (std::vector<fs::path>{folder / "val/cat/v.jpg", folder / "val/dog/w.jpg"}));
}

TEST(ImageFolder, RejectsInvalidLayouts) {
  const TemporaryFolder folder;
  const auto expect = [&](const std::string& part) {
    expect_error<FileError>([&] { read_image_folder(folder.path()); }, part);
  };
  fs::create_directories(folder / "train");
  expect(folder.path().string() + ": expected a subfolder val or test next to train");
  fs::create_directories(folder / "val");
  expect("train: expected a subfolder for each class, got none");
  write_bytes(folder / "train/cat/a.jpg", "");
  expect("val: expected a subfolder for each class, got none");
  write_bytes(folder / "val/dog/a.jpg", "");
  expect("val: expected a subfolder for class cat, as in train");
  write_bytes(folder / "val/cat/a.jpg", "");
  expect("val: class dog has no subfolder in train");
  fs::create_directories(folder / "train/dog");
  expect("train/dog: expected the images of a class, got an empty folder");
  write_bytes(folder / "train/dog/a.gif", "");
  expect("train/dog: expected only images (.jpg, .jpeg, .png), got a.gif");
  fs::remove(folder / "train/dog/a.gif");
  fs::create_directories(folder / "train/dog/images.jpg");
  expect("train/dog: expected only images (.jpg, .jpeg, .png), got images.jpg");
}

}  // namespace
}  // namespace tensorion::lab
