// The first byte selects the file of a data set that the other bytes are: a batch of CIFAR-10, a batch of
// CIFAR-100, or the names of its classes.
#include <ATen/ATen.h>

#include "lab/data/cifar.h"
#include "lab/io/file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/lab/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using namespace tensorion;

// Folders of both data sets. Every file has the fuzzed bytes, except for the kinds of files that are not
// fuzzed, which are valid.
struct Folders {
  fuzz::MemoryFile file;
  lab::testing::TemporaryFolder cifar10, cifar100, names;

  Folders() {
    for (const std::string name :
         {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
      fs::create_symlink(file.path(), cifar10 / (name + ".bin"));
    }
    std::string classes;
    for (int i = 0; i < 100; ++i) classes += "class" + std::to_string(i) + "\n";
    lab::testing::write_bytes(cifar100.file("fine_label_names.txt"), classes);
    fs::create_symlink(file.path(), names / "fine_label_names.txt");
    for (const std::string name : {"train.bin", "test.bin"}) {
      fs::create_symlink(file.path(), cifar100 / name);
      lab::testing::write_bytes(names.file(name), std::string(3074, '\1'));
    }
  }
};

void check(const lab::RawSplits& splits, int64_t classes) {
  fuzz::expect(static_cast<int64_t>(splits.classes.size()) == classes, "a wrong number of classes");
  for (const auto* samples : {&splits.train, &splits.test}) {
    fuzz::expect(samples->pixels.size(0) == static_cast<int64_t>(samples->labels.size()),
                 "labels and images");
    for (const int64_t label : samples->labels) fuzz::expect(label >= 0 && label < classes, "a label");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folders folders;
  if (size == 0) return 0;
  folders.file.write(data + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      fuzz::succeeds<lab::FileError>(folders.cifar10.path(),
                                     [] { check(lab::read_cifar10(folders.cifar10.path()), 10); });
      break;
    case 1:
      fuzz::succeeds<lab::FileError>(folders.cifar100.path(),
                                     [] { check(lab::read_cifar100(folders.cifar100.path()), 100); });
      break;
    default:
      fuzz::succeeds<lab::FileError>(folders.names.path(),
                                     [] { check(lab::read_cifar100(folders.names.path()), 100); });
  }
  return 0;
}
