// The data sets by name: where they are looked for, how they are read, and the
// transforms they are trained and tested with.
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

struct DatasetOptions {
  // The data set's folder, or one with a subfolder of the data set's name. If
  // empty, the environment's TENSORION_DATA is taken, then, for fashion-mnist,
  // the folder of Debian's package dataset-fashion-mnist.
  std::filesystem::path folder{};
  // Height and width of the pictures the model sees. By default their own size
  // if they are small (at most 64 pixels), else 224.
  std::optional<int64_t> image_size{};
  // Take only so many samples, as many of every class, chosen by subset_seed.
  std::optional<int64_t> limit_train{};
  std::optional<int64_t> limit_test{};
  uint64_t subset_seed = 0;
  // Pictures of a split that need more bytes than this are decoded at use.
  int64_t memory_limit = default_memory_limit();
};

struct DatasetSpec {
  std::string name;
  std::filesystem::path folder;  // where it was found
  std::vector<std::string> classes;
  Dataset train;
  Dataset test;
  // Pictures in their own size: random crop with a padding of 4 and flip; as
  // they are in the test. In another size: random resized crop and flip;
  // shorter side resized to 8/7 of the size and centre crop in the test.
  Transform train_transform;
  Transform test_transform;
};

DatasetSpec load_dataset(const std::string& name, const DatasetOptions& options = {});

}  // namespace tensorion::lab
