#include "lab/data/catalog.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "lab/data/cifar.h"
#include "lab/data/fashion_mnist.h"
#include "lab/data/fingerprint.h"
#include "lab/data/image_file.h"
#include "lab/data/image_folder.h"
#include "lab/data/tiny_imagenet.h"
#include "lab/io/file.h"

namespace tensorion::lab {
namespace {

constexpr int64_t kMaxImageSize = 16384;
constexpr size_t kRgbChannels = 3;

namespace fs = std::filesystem;

// A supported file layout of a data set.
struct Layout {
  bool (*is_there)(const fs::path&);
  RawSplits (*read)(const fs::path&);
  const char* description;
};

struct Entry {
  const char* name;
  const char* title;
  std::vector<const char*> folders;  // possible names of the folder
  std::vector<Layout> layouts;
  std::optional<ImageSize> size;  // size of the images; if empty, it is read from the files
  std::optional<int64_t> classes;
  Normalization normalization;
  const char* where_to_get;
};

constexpr int64_t kPadding = 4;
constexpr int64_t kSmallSide = 64;        // by default, images up to this size are not resized
constexpr int64_t kLargeImageSize = 224;  // default size for larger images
constexpr const char* kDebianFashionMnist = "/usr/share/datasets/fashion-mnist";

const Layout kImageFolder{
    has_image_folder, read_image_folder,
    "train/<class>/*.jpg and val/<class>/*.jpg (or test/<class>/*.jpg); .png files are accepted too"};

// The CIFAR normalizations are those of mmpretrain's standard pipelines.
const std::vector<Entry>& entries() {
  static const Normalization imagenet{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
  static const std::vector<Entry> all{
      {"fashion-mnist",
       "Fashion-MNIST",
       {"fashion-mnist"},
       {{has_fashion_mnist, read_fashion_mnist,
         "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
         "t10k-labels-idx1-ubyte, each with or without .gz"}},
       kFashionMnistSize,
       10,
       {{0.2860}, {0.3530}},
       "scripts/get_data.sh fashion-mnist, or Debian's package dataset-fashion-mnist"},
      {"cifar10",
       "CIFAR-10",
       {"cifar10", "cifar-10-batches-bin"},
       {{has_cifar10, read_cifar10, "data_batch_1.bin ... data_batch_5.bin and test_batch.bin"},
        kImageFolder},
       kCifarSize,
       10,
       {{125.307 / 255, 122.961 / 255, 113.8575 / 255}, {51.5865 / 255, 50.847 / 255, 51.255 / 255}},
       "scripts/get_data.sh cifar10"},
      {"cifar100",
       "CIFAR-100",
       {"cifar100", "cifar-100-binary"},
       {{has_cifar100, read_cifar100, "train.bin, test.bin and fine_label_names.txt"}, kImageFolder},
       kCifarSize,
       100,
       {{129.304 / 255, 124.070 / 255, 112.434 / 255}, {68.170 / 255, 65.392 / 255, 70.418 / 255}},
       "scripts/get_data.sh cifar100"},
      {"tiny-imagenet",
       "Tiny ImageNet",
       {"tiny-imagenet", "tiny-imagenet-200"},
       {{has_tiny_imagenet, read_tiny_imagenet,
         "wnids.txt, train/<wnid>/images/*.JPEG, val/images/*.JPEG and val/val_annotations.txt"}},
       kTinyImagenetSize,
       std::nullopt,
       {{0.4802, 0.4481, 0.3975}, {0.2770, 0.2691, 0.2821}},
       "scripts/get_data.sh tiny-imagenet"},
      {"imagenette",
       "Imagenette",
       {"imagenette", "imagenette2-320", "imagenette2", "imagenette2-160"},
       {kImageFolder},
       std::nullopt,
       10,
       imagenet,
       "scripts/get_data.sh imagenette"},
      {"imagefolder",
       "image folder",
       {"imagefolder"},
       {kImageFolder},
       std::nullopt,
       std::nullopt,
       imagenet,
       "your own images"},
  };
  return all;
}

const Entry& find_entry(const std::string& name) {
  std::string known;
  for (const auto& entry : entries()) {
    if (entry.name == name) return entry;
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  TORCH_CHECK_VALUE(false, "[tensorion.data] the data set must be one of ", known, ", got ", name);
}

struct Found {
  fs::path folder;
  const Layout* layout;
};

Found find_folder(const Entry& entry, const fs::path& given) {
  // Folders to search, each with the option or source that names it.
  std::vector<std::pair<fs::path, std::string>> places;
  const char* environment = std::getenv("TENSORION_DATA");
  if (!given.empty()) {
    places.emplace_back(given, "--data");
  } else {
    if (environment != nullptr && *environment != '\0') places.emplace_back(environment, "TENSORION_DATA");
    if (entry.layouts[0].read == read_fashion_mnist) places.emplace_back(kDebianFashionMnist, "Debian");
  }
  std::string searched;
  for (const auto& [place, by] : places) {
    std::vector<fs::path> folders{place};
    for (const char* name : entry.folders) folders.push_back(place / name);
    for (const auto& folder : folders) {
      for (const auto& layout : entry.layouts) {
        if (layout.is_there(folder)) return {folder, &layout};
      }
    }
    searched += "\n  searched: " + place.string() + " (" + by + ")" +
                (is_folder(place) ? "" : ", which does not exist");
  }
  if (places.empty())
    searched = "\n  searched: no folder, because neither --data DIR nor TENSORION_DATA is set";
  std::string expected;
  for (const auto& layout : entry.layouts) {
    expected += (expected.empty() ? "" : "\n        or: ") + std::string(layout.description);
  }
  throw std::runtime_error("[tensorion.data] data set " + std::string(entry.name) + " not found" + searched +
                           "\n  expected: " + expected + "\n    in DIR or DIR/" + entry.name +
                           "\n  get it with: " + entry.where_to_get);
}

// Returns true if all images have this size.
bool all_have_size(const RawSplits& raw, ImageSize size) {
  for (const auto* split : {&raw.train, &raw.test}) {
    for (const auto& file : split->files) {
      if (image_size(read_file(file), file) != size) return false;
    }
  }
  return true;
}

// Returns the size that all images share, or nullopt if the images in the folder are large or have to be
// resized. Small images that are not resized must all have the size of the first image.
std::optional<ImageSize> common_size(const Entry& entry, const RawSplits& raw,
                                     std::optional<int64_t> image_size) {
  if (entry.size) return entry.size;
  const fs::path& first = raw.train.files.front();
  const std::string bytes = read_file(first);
  const ImageSize size = lab::image_size(bytes, first);
  if (std::max(size.height, size.width) > kSmallSide) return std::nullopt;
  if (image_size && (size != ImageSize{*image_size, *image_size} || !all_have_size(raw, size))) {
    return std::nullopt;
  }
  return size;
}

// Moves the validation samples out of `train` and returns them.
RawSplit hold_out(RawSplit& train, const DatasetOptions& options) {
  const auto total = static_cast<int64_t>(train.labels.size());
  const int64_t used = std::min(total, options.limit_train.value_or(total));
  const int64_t requested = options.validation.value();
  const int64_t count = requested > 0 ? requested : std::max<int64_t>(1, used / 10);
  TORCH_CHECK_VALUE(count < total, "[tensorion.data] --validation must be less than ", total,
                    ", the number of training samples, got ", count);
  // The seed must differ from the seed of limit_train, or both would choose the same samples.
  const auto chosen = balanced_subset(train.labels, count, options.subset_seed + 1);
  std::vector<int64_t> others;
  for (int64_t i = 0, next = 0; i < total; ++i) {
    if (next < count && chosen[next] == i) {
      ++next;
    } else {
      others.push_back(i);
    }
  }
  auto validation = select(train, chosen);
  train = select(train, others);
  return validation;
}

Dataset load_split(const RawSplit& split, std::optional<int64_t> limit, std::optional<ImageSize> size,
                   const DatasetOptions& options) {
  if (!limit) return make_dataset(split, size, options.memory_limit);
  return make_dataset(select(split, balanced_subset(split.labels, *limit, options.subset_seed)), size,
                      options.memory_limit);
}

}  // namespace

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const auto& entry : entries()) names.emplace_back(entry.name);
  return names;
}

std::string dataset_title(const std::string& name) { return find_entry(name).title; }

DatasetSplits load_dataset(const std::string& name, const DatasetOptions& options) {
  const Entry& entry = find_entry(name);
  TORCH_CHECK_VALUE(!options.image_size || *options.image_size >= 1,
                    "[tensorion.data] the image size must be at least 1, got ", *options.image_size);
  TORCH_CHECK_VALUE(!options.image_size || *options.image_size <= kMaxImageSize,
                    "[tensorion.data] the image size must be at most ", kMaxImageSize, ", got ",
                    *options.image_size);
  const auto [folder, layout] = find_folder(entry, options.folder);
  RawSplits raw = layout->read(folder);
  if (entry.classes && static_cast<int64_t>(raw.classes.size()) != *entry.classes) {
    throw FileError(folder, name + " must have " + std::to_string(*entry.classes) + " classes, got " +
                                std::to_string(raw.classes.size()));
  }
  const auto own_size = common_size(entry, raw, options.image_size);

  DatasetSplits out;
  out.name = name;
  out.folder = folder;
  out.fingerprint = fingerprint(raw, folder);
  out.classes = std::move(raw.classes);
  if (options.validation) {
    out.validation = load_split(hold_out(raw.train, options), std::nullopt, own_size, options);
  }
  out.train = load_split(raw.train, options.limit_train, own_size, options);
  out.test = load_split(raw.test, options.limit_test, own_size, options);

  const int64_t side = options.image_size.value_or(kLargeImageSize);
  ImageSize size{side, side};
  if (own_size && !options.image_size) size = *own_size;
  TORCH_CHECK_VALUE(options.flip == "none" || options.flip == "horizontal" || options.flip == "both",
                    "[tensorion.data] --flip must be none, horizontal or both, got ", options.flip);
  out.train_transform = {size, RandomResizedCrop{}, options.flip != "none", entry.normalization};
  out.train_transform.flip_vertical = options.flip == "both";
  out.test_transform = {size, {}, /*flip=*/false, entry.normalization};
  if (own_size == size) {
    out.train_transform.crop = PaddedCrop{kPadding};
    out.test_transform.crop = PaddedCrop{0};
  } else {
    // Pretrained weights expect three channels.
    const bool is_pretrained = options.resized && entry.normalization.mean.size() == kRgbChannels;
    const auto resized = is_pretrained ? *options.resized : PretrainedPreprocessing{entry.normalization};
    const double shorter_side = static_cast<double>(side) / resized.crop_pct;
    out.test_transform.crop =
        CenterCrop{is_pretrained ? static_cast<int64_t>(shorter_side) : std::lround(shorter_side)};
    for (auto* transform : {&out.train_transform, &out.test_transform}) {
      transform->normalization = resized.normalization;
      transform->interpolation = resized.interpolation;
    }
  }
  out.train_transform.transpose = out.test_transform.transpose = options.transpose;
  return out;
}

}  // namespace tensorion::lab
