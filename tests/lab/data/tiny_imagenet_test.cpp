#include "lab/data/tiny_imagenet.h"

#include "tests/lab/data/support.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;

using testing::expect_error;
using testing::TemporaryFolder;
using testing::write_bytes;

class TinyImagenet : public ::testing::Test {
 protected:
  TinyImagenet() {
    write_bytes(folder_ / "wnids.txt", "n02\nn01\n");  // not sorted, as in the original
    for (const char* file :
         {"train/n01/images/n01_1.JPEG", "train/n01/images/n01_0.JPEG", "train/n02/images/n02_0.JPEG",
          "train/n01/n01_boxes.txt", "val/images/val_1.JPEG", "val/images/val_0.JPEG"}) {
      write_bytes(folder_ / file, "");
    }
    annotate("val_0.JPEG\tn02\t0\t32\t44\t62\nval_1.JPEG\tn01\t1\t2\t3\t4\n");
  }

  void annotate(const std::string& text) { write_bytes(folder_ / "val/val_annotations.txt", text); }

  void expect(const std::string& part) {
    expect_error<FileError>([&] { read_tiny_imagenet(folder_.path()); }, part);
  }

  TemporaryFolder folder_;
};

TEST_F(TinyImagenet, ListsImagesInSortedOrder) {
  EXPECT_TRUE(has_tiny_imagenet(folder_.path()));
  EXPECT_FALSE(has_tiny_imagenet(folder_ / "train"));
  const RawSplits splits = read_tiny_imagenet(folder_.path());
  EXPECT_EQ(splits.classes, (std::vector<std::string>{"n01", "n02"}));
  EXPECT_EQ(splits.train.files, (std::vector<fs::path>{folder_ / "train/n01/images/n01_0.JPEG",
                                                       folder_ / "train/n01/images/n01_1.JPEG",
                                                       folder_ / "train/n02/images/n02_0.JPEG"}));
  EXPECT_EQ(splits.train.labels, (std::vector<int64_t>{0, 0, 1}));
  EXPECT_EQ(splits.test.files,
            (std::vector<fs::path>{folder_ / "val/images/val_0.JPEG", folder_ / "val/images/val_1.JPEG"}));
  EXPECT_EQ(splits.test.labels, (std::vector<int64_t>{1, 0}));
}

TEST_F(TinyImagenet, ReportsLineOfInvalidAnnotation) {
  annotate("val_0.JPEG\tn02\n\nval_1.JPEG\tn03\t1\n");
  expect("val_annotations.txt: line 3: class n03 is not in wnids.txt");
  annotate("val_0.JPEG n02\n");
  expect(
      "val_annotations.txt: line 1: expected a file name and a class separated by a tab, got val_0.JPEG n02");
  annotate("val_0.JPEG\tn02\nval_0.JPEG\tn01\n");
  expect("val_annotations.txt: line 2: val_0.JPEG appears twice");
  annotate("val_0.JPEG\tn02\n");
  expect("val_annotations.txt: expected a line for " + (folder_ / "val/images/val_1.JPEG").string() +
         ", got none");
  annotate("val_0.JPEG\tn02\nval_1.JPEG\tn01\nval_2.JPEG\tn01\n");
  expect("val/images/val_2.JPEG: the file is missing, but val_annotations.txt lists it");
  annotate("val_0.JPEG\tn01\nval_1.JPEG\tn01\n");
  expect("val_annotations.txt: expected an image of class n02, got none");
}

TEST_F(TinyImagenet, RejectsInvalidFolders) {
  fs::remove(folder_ / "train/n02/images/n02_0.JPEG");
  expect("train/n02/images: expected the images of a class, got an empty folder");
  fs::remove_all(folder_ / "train/n02");
  expect("train/n02/images: cannot list the folder");
  write_bytes(folder_ / "wnids.txt", "n02\nn02\n");
  expect("wnids.txt: class n02 appears twice");
  write_bytes(folder_ / "wnids.txt", "\n");
  expect("wnids.txt: expected one WordNet id per line, got none");
}

}  // namespace
}  // namespace tensorion::lab
