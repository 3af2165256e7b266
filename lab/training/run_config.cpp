#include "lab/training/run_config.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lab/io/json_file.h"
#include "lab/models/state_dict.h"
#include "lab/text/usage_error.h"

namespace tensorion::lab {
namespace {

constexpr int64_t kCifarStemSide = 64;

Stem stem_of(const RunConfig& config, ImageSize size) {
  if (config.stem == "cifar") return Stem::kCifar;
  if (config.stem == "imagenet") return Stem::kImageNet;
  TORCH_CHECK_VALUE(config.stem == "auto", "[tensorion.train] the stem must be auto, cifar or imagenet, got ",
                    config.stem);
  return std::max(size.height, size.width) <= kCifarStemSide ? Stem::kCifar : Stem::kImageNet;
}

ModelOptions model_options(const RunConfig& config) {
  ModelOptions options;
  options.name = config.model;
  options.width = config.width;
  options.depths = config.depths;
  options.image_size = config.data.image_size.value_or(0);
  return options;
}

DataLoader make_loader(const RunConfig& config, const Dataset& data, const Transform& transform, bool train) {
  DataLoaderOptions options;
  options.batch_size = config.batch_size;
  options.shuffle = train;
  options.channels_last = config.channels_last;
  options.pin_memory = config.training.device.is_cuda();
  options.seed = static_cast<uint64_t>(config.seed);
  options.workers = config.workers > 0 ? config.workers : data.pixels.defined() ? 1 : config.threads;
  return {data, transform, options};
}

}  // namespace

const std::string& method_name(const RunConfig& config) {
  return config.label.empty() ? config.optimizer : config.label;
}

nlohmann::ordered_json to_json(const RunConfig& config) {
  nlohmann::ordered_json out{
      {"dataset", config.dataset},
      {"image_size", or_null(config.data.image_size)},
      {"limit_train", or_null(config.data.limit_train)},
      {"limit_test", or_null(config.data.limit_test)},
      {"validation", or_null(config.data.validation)},
      {"flip", config.data.flip},
      {"transpose", config.data.transpose},
      {"model", config.model},
      {"width", config.width},
      {"depths", config.depths},
      {"stem", config.stem},
      {"weights", config.weights},
      {"optimizer", config.optimizer},
  };
  if (!config.label.empty()) out["label"] = config.label;
  if (config.grid) out["grid"] = true;
  out.update(to_json(config.optimizer, config.optimizer_options));
  const auto& schedule = config.training.schedule;
  out.update({{"schedule", schedule.name},
              {"milestones", schedule.milestones},
              {"gamma", schedule.gamma},
              {"cycle_momentum", schedule.cycle_momentum},
              {"warmup_epochs", schedule.warmup_epochs},
              {"epochs", config.training.epochs},
              {"batch_size", config.batch_size},
              {"label_smoothing", config.training.label_smoothing},
              {"nonfinite", config.training.nonfinite},
              {"clip_grad", config.training.clip_grad},
              {"accumulate", config.training.accumulate},
              {"ema", config.training.ema},
              {"log_steps", config.training.log_steps},
              {"device", config.training.device.str()},
              {"amp", config.training.amp},
              {"channels_last", config.channels_last},
              {"seed", config.seed},
              {"threads", config.threads}});
  return out;
}

bool is_recorded(const std::string& key) {
  static const std::set<std::string> keys{"train_samples", "test_samples",  "classes", "data_fingerprint",
                                          "class_names",   "preprocessing", "grid",    "deviations"};
  return keys.contains(key);
}

DatasetSplits load_data(const RunConfig& config) {
  auto options = config.data;
  if (!options.image_size) {
    const int64_t size = checked_usage([&] { return model_image_size(model_options(config)); });
    if (size > 0) options.image_size = size;
  }
  if (const auto pretrained = pretrained_config(config.model)) {
    const auto& [mean, std, is_bicubic, crop_pct] = *pretrained;
    options.resized = {{{mean.begin(), mean.end()}, {std.begin(), std.end()}},
                       is_bicubic ? Interpolation::kBicubic : Interpolation::kBilinear,
                       crop_pct};
  }
  return load_dataset(config.dataset, options);
}

Model make_model(const RunConfig& config, const DatasetSplits& data, std::string* new_head) {
  auto options = model_options(config);
  options.classes = static_cast<int64_t>(data.classes.size());
  options.channels = data.train.channels;
  options.stem = stem_of(config, data.train_transform.size);
  at::manual_seed(static_cast<uint64_t>(config.seed));
  auto model = checked_usage([&] { return make_model(options); });
  if (!config.weights.empty() && !load_weights(*model, config.weights).empty() && new_head != nullptr) {
    *new_head = c10::str("the head ", model->head_name(), " is initialized at random for ", options.classes,
                         " classes, because ", config.weights, " has no head of that size");
  }
  model->to(config.training.device);
  if (config.channels_last) {
    for (auto& parameter : model->parameters()) {
      if (parameter.dim() == 4)
        parameter.set_data(parameter.detach().contiguous(at::MemoryFormat::ChannelsLast));
    }
  }
  return model;
}

DataLoader train_loader(const RunConfig& config, const DatasetSplits& data) {
  return make_loader(config, data.train, data.train_transform, true);
}

const Dataset& test_split(const RunConfig& config, const DatasetSplits& data) {
  return config.grid && data.validation ? *data.validation : data.test;
}

DataLoader test_loader(const RunConfig& config, const DatasetSplits& data) {
  return make_loader(config, test_split(config, data), data.test_transform, false);
}

}  // namespace tensorion::lab
