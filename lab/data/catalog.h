// The catalog of data sets: where each one is searched for, how it is read, and which transforms it uses.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lab/data/dataset.h"
#include "lab/data/transform.h"

namespace tensorion::lab {

// Returns fashion-mnist, cifar10, cifar100, tiny-imagenet, imagenette and imagefolder.
std::vector<std::string> dataset_names();

// Returns the display name of a data set, such as "CIFAR-10" for cifar10.
std::string dataset_title(const std::string& name);

// The preprocessing of resized images that the weights of a model expect.
struct PretrainedPreprocessing {
  Normalization normalization;
  Interpolation interpolation = Interpolation::kBilinear;
  double crop_pct = 0.875;  // fraction of the shorter side that the center crop keeps at test time
};

struct DatasetOptions {
  // The folder of the data set, or a folder with a subfolder that has the name of the data set. If empty, the
  // environment variable TENSORION_DATA is used. For fashion-mnist, the folder of Debian's package
  // dataset-fashion-mnist is searched last.
  std::filesystem::path folder{};
  // Height and width of the model's input. By default, images of at most 64 pixels keep their size, and
  // larger images are resized to 224.
  std::optional<int64_t> image_size = std::nullopt;
  // Maximum number of samples. The subset is balanced over the classes and chosen by subset_seed.
  std::optional<int64_t> limit_train = std::nullopt;
  std::optional<int64_t> limit_test = std::nullopt;
  // Number of training samples to hold out for validation, balanced over the classes. They are held out
  // before `limit_train` is applied. 0 means a tenth of the training samples in use.
  std::optional<int64_t> validation = std::nullopt;
  uint64_t subset_seed = 0;
  std::string flip = "horizontal";  // random flips in training: none, horizontal or both
  bool transpose = false;           // exchange height and width of all images
  // By default, the normalization of the data set and bilinear interpolation.
  std::optional<PretrainedPreprocessing> resized = std::nullopt;
  // If the images of a split need more bytes than this, they are decoded on demand.
  int64_t memory_limit = default_memory_limit();
};

// A data set that is ready for training and testing.
struct DatasetSplits {
  std::string name;
  std::filesystem::path folder;  // where it was found
  std::string fingerprint = {};  // covers all samples, regardless of the limits
  std::vector<std::string> classes;
  Dataset train;
  Dataset test;
  std::optional<Dataset> validation;  // held out from the training set
  // If images keep their size, training uses a random crop with a padding of 4 and a random flip, and testing
  // uses the unchanged image. If images are resized, training uses a random resized crop and a random flip.
  // Testing then resizes the shorter side to the size divided by crop_pct and takes the center crop.
  Transform train_transform;
  Transform test_transform;
};

DatasetSplits load_dataset(const std::string& name, const DatasetOptions& options = {});

}  // namespace tensorion::lab
