// A model and a data set that are small enough to train in a test.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "lab/data/data_loader.h"
#include "lab/models/classifier.h"
#include "lab/training/optimizers.h"
#include "lab/training/trainer.h"
#include "tests/support.h"

namespace tensorion::lab::testing {

inline constexpr int64_t kSide = 6;
inline constexpr int64_t kClasses = 3;

// A convolution, a random mask (in training mode, from torch's generator) and a linear layer.
class TinyModel : public Classifier {
 public:
  explicit TinyModel(int64_t features = 4) {
    at::manual_seed(7);
    conv_ = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, features, 3).padding(1)));
    fc_ = register_module("fc", torch::nn::Linear(features * kSide * kSide, kClasses));
  }
  at::Tensor forward(at::Tensor images) override {
    return fc_->forward(at::dropout(conv_->forward(images).relu().flatten(1), 0.1, is_training()));
  }
  std::string head_name() const override { return "fc"; }
  void reset_head() override { fc_->reset_parameters(); }

 private:
  torch::nn::Conv2d conv_{nullptr};
  torch::nn::Linear fc_{nullptr};
};

// Noise with a bright row whose position is the class.
inline Dataset tiny_data(int64_t count, uint64_t seed) {
  auto pixels = at::randint(0, 100, {count, 1, kSide, kSide}, tensorion::testing::generator(seed), at::kByte);
  const auto labels = at::arange(count, at::kLong).remainder(kClasses);
  for (int64_t i = 0; i < count; ++i) pixels[i][0][2 * labels[i].item<int64_t>()].add_(100);
  Dataset data;
  data.channels = 1;
  data.size = ImageSize{kSide, kSide};
  data.pixels = pixels;
  data.labels = labels;
  return data;
}

inline DataLoader tiny_loader(int64_t count, int64_t batch_size, bool train) {
  DataLoaderOptions options;
  options.batch_size = batch_size;
  options.shuffle = train;
  return {tiny_data(count, train ? 1 : 2), {{kSide, kSide}, PaddedCrop{0}, false, {{0.5}, {0.5}}}, options};
}

// A trainer with its model, optimizer and data, for 3 epochs of 4 batches.
struct TinyRun {
  explicit TinyRun(const std::string& optimizer_name = "tensorion", TrainerOptions options = {.epochs = 3})
      : optimizer(model.parameters(), default_options(optimizer_name)),
        trainer(model, optimizer, train, test, std::move(options)) {}

  TinyModel model;
  DataLoader train = tiny_loader(45, 12, true);
  DataLoader test = tiny_loader(30, 20, false);
  Tensorion optimizer;
  Trainer trainer;
};

inline void no_warning(const std::string& what) { ADD_FAILURE() << what; }

}  // namespace tensorion::lab::testing
