#include "lab/data/fashion_mnist.h"

#include <ATen/ATen.h>

#include "lab/data/idx.h"
#include "lab/io/file.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;

fs::path find(const fs::path& folder, const std::string& name) {
  return is_file(folder / name) ? folder / name : folder / (name + ".gz");
}

RawSplit read_split(const fs::path& folder, const std::string& split, int64_t classes) {
  const fs::path image_file = find(folder, split + "-images-idx3-ubyte");
  const fs::path label_file = find(folder, split + "-labels-idx1-ubyte");
  const auto images = read_idx(image_file, 3);
  const auto labels = read_idx(label_file, 1);
  const auto [height, width] = kFashionMnistSize;
  if (images.size(0) == 0 || images.size(1) != height || images.size(2) != width) {
    throw FileError(image_file, "expected images of 28 x 28 pixels, got " + std::to_string(images.size(0)) +
                                    " of " + std::to_string(images.size(1)) + " x " +
                                    std::to_string(images.size(2)));
  }
  if (labels.size(0) != images.size(0)) {
    throw FileError(label_file, "expected a label for each of the " + std::to_string(images.size(0)) +
                                    " images in " + image_file.filename().string() + ", got " +
                                    std::to_string(labels.size(0)));
  }
  RawSplit out;
  out.pixels = images.unsqueeze(1);
  for (int64_t i = 0; i < labels.size(0); ++i) {
    out.labels.push_back(labels.const_data_ptr<uint8_t>()[i]);
    if (out.labels.back() >= classes) {
      throw FileError(label_file, "label " + std::to_string(i) + " must be in [0, " +
                                      std::to_string(classes) + "), got " +
                                      std::to_string(out.labels.back()));
    }
  }
  return out;
}

}  // namespace

bool has_fashion_mnist(const fs::path& folder) { return is_file(find(folder, "train-images-idx3-ubyte")); }

RawSplits read_fashion_mnist(const fs::path& folder) {
  RawSplits out;
  out.classes = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                 "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
  const auto classes = static_cast<int64_t>(out.classes.size());
  out.train = read_split(folder, "train", classes);
  out.test = read_split(folder, "t10k", classes);
  return out;
}

}  // namespace tensorion::lab
