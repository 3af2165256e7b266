// The configuration of a run, which determines its result: the same configuration gives the same weights and
// metrics, bit for bit.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/data/catalog.h"
#include "lab/models/models.h"
#include "lab/training/optimizers.h"
#include "lab/training/trainer.h"

namespace tensorion::lab {

struct RunConfig {
  std::string dataset = "fashion-mnist";
  DatasetOptions data = {};

  std::string model = "resnet18";
  double width = 1;
  std::vector<int64_t> depths = {};
  // Stem of a ResNet: cifar, imagenet or auto. auto chooses cifar for images of up to 64 pixels.
  std::string stem = "auto";
  std::string weights = {};  // safetensors file with the initial weights; if empty, they are random

  std::string optimizer = "tensorion";
  // Name in a comparison that uses the same optimizer several times.
  std::string label = {};
  bool grid = false;                         // true for a run of a learning-rate search
  std::vector<std::string> deviations = {};  // deviations from the paper's experiment
  TensorionOptions optimizer_options = default_options("tensorion");

  TrainerOptions training = {};
  int64_t batch_size = 128;
  bool channels_last = true;
  int64_t seed = 0;     // for the weights, the order of the data and the augmentation
  int64_t threads = 1;  // number of threads of torch
  // Number of threads that prepare batches. 0 means one thread for images in memory, and `threads` for image
  // files.
  int64_t workers = 0;
};

// Returns the label, or the optimizer if there is no label.
const std::string& method_name(const RunConfig& config);

// Returns the options that determine the run. Keys are the names on the command line with _ instead of -.
nlohmann::ordered_json to_json(const RunConfig& config);

// Returns true if a key of config.json is not an option but a property that the run recorded, such as the
// number of samples.
bool is_recorded(const std::string& key);

// Loads the data set of the run with the image size that the model expects.
DatasetSplits load_data(const RunConfig& config);

// Seeds torch's generator and returns the model with its initial weights. If the weights come from a file and
// the head was initialized randomly, `new_head` describes this.
Model make_model(const RunConfig& config, const DatasetSplits& data, std::string* new_head = nullptr);

// Returns the data on which the run is tested: the test set or, in a learning-rate search, the validation
// samples if there are any.
const Dataset& test_split(const RunConfig& config, const DatasetSplits& data);

// Return the loaders of the training and the test batches.
DataLoader train_loader(const RunConfig& config, const DatasetSplits& data);
DataLoader test_loader(const RunConfig& config, const DatasetSplits& data);

}  // namespace tensorion::lab
