// The data sets by name: where they are looked for, how they are read, and their transforms.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lab/data/dataset.h"
#include "lab/data/transform.h"

namespace tensorion::lab {

// fashion-mnist, cifar10, cifar100, tiny-imagenet, imagenette, imagefolder.
std::vector<std::string> dataset_names();

// Its name for people: "CIFAR-10" for cifar10.
std::string dataset_title(const std::string& name);

// How the weights of a model expect pictures that are resized.
struct ResizedPictures {
  Normalization normalization;
  Interpolation interpolation = Interpolation::kBilinear;
  double crop_pct = 0.875;  // share of the shorter side that the center crop of a test keeps
};

struct DatasetOptions {
  // The data set's folder, or one with a subfolder of the data set's name. If
  // empty, the environment's TENSORION_DATA is taken, then, for fashion-mnist,
  // the folder of Debian's package dataset-fashion-mnist.
  std::filesystem::path folder{};
  // Height and width of the pictures the model sees. By default their own size
  // if they are small (at most 64 pixels), else 224.
  std::optional<int64_t> image_size = std::nullopt;
  // At most so many samples, the same number of every class, chosen by subset_seed.
  std::optional<int64_t> limit_train = std::nullopt;
  std::optional<int64_t> limit_test = std::nullopt;
  // Samples of the training set that are held out, the same number of every class, before `limit_train`
  // counts; 0: a tenth of the samples to train on.
  std::optional<int64_t> validation = std::nullopt;
  uint64_t subset_seed = 0;
  std::string flip = "horizontal";  // random flips of pictures to train on: none, horizontal or both
  bool transpose = false;           // exchange height and width of all pictures
  std::optional<ResizedPictures> resized = std::nullopt;  // by default the data set's normalization, bilinear
  // Pictures of a split that need more bytes than this are decoded at use.
  int64_t memory_limit = default_memory_limit();
};

// A data set, ready for training and testing.
struct DatasetSplits {
  std::string name;
  std::filesystem::path folder;  // where it was found
  std::string fingerprint = {};  // of all samples, whatever the limits
  std::vector<std::string> classes;
  Dataset train;
  Dataset test;
  std::optional<Dataset> validation;  // held out from the training set
  // Images in their own size: random crop with a padding of 4 and flip to train, unchanged to test. Images in
  // another size: random resized crop and flip to train; the shorter side resized to the size divided by
  // crop_pct and a center crop to test.
  Transform train_transform;
  Transform test_transform;
};

DatasetSplits load_dataset(const std::string& name, const DatasetOptions& options = {});

}  // namespace tensorion::lab
