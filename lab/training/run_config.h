// Everything that determines a run: the same configuration gives the same weights and metrics, bit for bit.
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
  std::string stem = "auto";  // of a ResNet: cifar, imagenet, auto: cifar for pictures of up to 64 pixels
  std::string weights = {};   // a safetensors file to start from; empty: fresh weights

  std::string optimizer = "tensorion";
  std::string label = {};                    // its name in a comparison, if that has several of one optimizer
  bool grid = false;                         // whether it is one of a search for learning rates
  std::vector<std::string> deviations = {};  // how an experiment of the paper differs from the paper
  TensorionOptions optimizer_options = default_options("tensorion");

  TrainerOptions training = {};
  int64_t batch_size = 128;
  bool channels_last = true;
  int64_t seed = 0;     // of the weights, the order of the data and its augmentation
  int64_t threads = 1;  // of torch
  int64_t workers = 0;  // threads that make batches; 0: one, and as many as `threads` to decode files
};

// The label, or else the optimizer.
const std::string& method_name(const RunConfig& config);

// The options that determine the run under the names of the command line (with _ for -).
nlohmann::ordered_json to_json(const RunConfig& config);

// Whether a key of a run's config.json is not an option, but a record of what the run found, such as the
// number of samples.
bool is_recorded(const std::string& key);

// The data set that the run needs, in the size of pictures that its model is made for.
DatasetSplits load_data(const RunConfig& config);

// The model with the weights to start from, on torch's generator seeded anew.
// If the head of a file of weights was drawn anew, `new_head` says so.
Model make_model(const RunConfig& config, const DatasetSplits& data, std::string* new_head = nullptr);

// What the run is tested on: the test set, or in a search the samples that are held out for it, if there are
// any.
const Dataset& test_split(const RunConfig& config, const DatasetSplits& data);

// The batches to train on and to test on.
DataLoader train_loader(const RunConfig& config, const DatasetSplits& data);
DataLoader test_loader(const RunConfig& config, const DatasetSplits& data);

}  // namespace tensorion::lab
