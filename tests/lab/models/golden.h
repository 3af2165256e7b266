// Compares our models with timm. make_golden.py writes timm's results to golden/*.json. The formulas for
// weights and images are the same as in timm_reference.py.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lab/models/models.h"
#include "lab/models/state_dict.h"
#include "tests/support.h"

namespace tensorion::lab::testing {

using nlohmann::json;
using Shape = std::vector<int64_t>;

inline std::string golden_path(const std::string& file) {
  return std::string(TENSORION_GOLDEN_DIR) + "/" + file;
}

inline json golden(const std::string& file) { return json::parse(std::ifstream(golden_path(file))); }

inline ModelOptions model_options(const json& values) {
  ModelOptions options;
  options.name = values.at("name");
  options.classes = values.value("classes", options.classes);
  options.channels = values.value("channels", options.channels);
  options.width = values.value("width", options.width);
  options.stem = values.value("stem", "imagenet") == "cifar" ? Stem::kCifar : Stem::kImageNet;
  options.image_size = values.value("image_size", options.image_size);
  options.depths = values.value("depths", options.depths);
  return options;
}

// Returns scale * u + offset. The values u in [-1, 1) are a 32-bit hash of the name and the position.
inline at::Tensor uniform(std::string_view name, const Shape& shape, double scale, double offset = 0.0) {
  uint32_t seed = 2166136261U;
  for (const unsigned char byte : name) seed = (seed ^ byte) * 16777619U;
  auto result = at::empty(shape);
  auto* values = result.data_ptr<float>();
  for (int64_t i = 0; i < result.numel(); ++i) {
    auto x = static_cast<uint32_t>(i) + seed;
    for (int round = 0; round < 2; ++round) x = (x ^ (x >> 16)) * 0x45D9F3BU;
    x ^= x >> 16;
    values[i] = static_cast<float>(offset + scale * (static_cast<double>(x) / 2147483648.0 - 1.0));
  }
  return result;
}

inline at::Tensor images(const Shape& shape) { return uniform("images", shape, std::sqrt(3.0)); }

inline at::Tensor formula(std::string_view name, const Shape& shape) {
  if (name.ends_with("running_var")) return uniform(name, shape, 0.5, 1.0);
  if (name.ends_with(".weight") || name.ends_with(".gamma")) {
    if (shape.size() == 1) return uniform(name, shape, 0.2, 1.0);
    const auto fan_in = static_cast<double>(c10::multiply_integers(shape.begin() + 1, shape.end()));
    return uniform(name, shape, std::sqrt(3.0 / fan_in));
  }
  return uniform(name, shape, 0.2);
}

// Sets every weight and statistic by the formula.
inline void fill(const torch::nn::Module& module) {
  for (auto& [name, tensor] : state_dict(module)) {
    if (tensor.is_floating_point()) tensor.copy_(formula(name, tensor.sizes().vec()));
  }
}

// Expands "blocks.0-2.norm" to "blocks.0.norm", "blocks.1.norm" and "blocks.2.norm".
inline std::map<std::string, Shape> unfold_names(const json& folded) {
  std::map<std::string, Shape> shapes;
  for (const auto& [name, shape] : folded.items()) {
    const auto dash = name.find('-');
    if (dash == std::string::npos) {
      shapes[name] = shape.get<Shape>();
      continue;
    }
    const auto begin = name.rfind('.', dash) + 1;
    const auto end = name.find('.', dash);
    const int last = std::stoi(name.substr(dash + 1, end - dash - 1));
    for (int i = std::stoi(name.substr(begin, dash - begin)); i <= last; ++i) {
      shapes[name.substr(0, begin) + std::to_string(i) + name.substr(end)] = shape.get<Shape>();
    }
  }
  return shapes;
}

// Compares the names and shapes of all tensors, and the eps of the normalizations.
inline void expect_structure(const json& golden) {
  for (const auto& [name, folded] : golden.at("shapes").items()) {
    const auto expected = unfold_names(folded);
    std::map<std::string, Shape> actual;
    const auto model = make_model({.name = name});
    for (const auto& [key, tensor] : state_dict(*model)) {
      actual[key] = tensor.sizes().vec();
      EXPECT_EQ(tensor.scalar_type(), key.ends_with("num_batches_tracked") ? at::kLong : at::kFloat) << key;
    }
    EXPECT_EQ(actual, expected) << name;
    std::set<double> eps;
    for (const auto& module : model->modules()) {
      if (const auto* norm = module->as<torch::nn::LayerNorm>()) eps.insert(norm->options.eps());
      if (const auto* norm = module->as<torch::nn::BatchNorm2d>()) eps.insert(norm->options.eps());
    }
    EXPECT_EQ(eps, golden.at("norm_eps").at(name).get<std::set<double>>()) << name;
  }
}

// Compares the outputs to 1e-4, for both memory formats of the images.
inline void expect_outputs(const json& golden) {
  const torch::NoGradGuard no_grad;
  for (const auto& entry : golden.at("outputs")) {
    const auto model = make_model(model_options(entry.at("options")));
    model->eval();
    fill(*model);
    const auto expected = entry.at("logits").get<std::vector<std::vector<float>>>();
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      const auto logits = model->forward(images(entry.at("images")).contiguous(format));
      ASSERT_EQ(logits.sizes(), (Shape{static_cast<int64_t>(expected.size()), entry["options"]["classes"]}));
      for (size_t i = 0; i < expected.size(); ++i) {
        tensorion::testing::expect_close(logits[static_cast<int64_t>(i)], torch::tensor(expected[i]), 1e-4,
                                         entry.at("options").dump());
      }
    }
  }
}

// Compares the sum of absolute values and the first value to six digits plus rounding.
inline void expect_sketch(const at::Tensor& tensor, const json& expected, const std::string& what) {
  const double sum = tensor.to(at::kDouble).abs().sum().item<double>();
  const double mean = sum / static_cast<double>(tensor.numel());
  EXPECT_NEAR(sum, expected[0].get<double>(), 1e-4 * sum + 1e-6) << what;
  EXPECT_NEAR(tensor.flatten()[0].item<double>(), expected[1].get<double>(), 1e-3 * mean + 1e-6) << what;
}

inline void expect_initial_weights(const json& golden) {
  for (const auto& entry : golden.at("initial")) {
    at::manual_seed(entry.at("seed"));
    const auto model = make_model(model_options(entry.at("options")));
    ASSERT_EQ(model->parameters().size(), entry.at("values").size());
    for (const auto& parameter : model->named_parameters()) {
      expect_sketch(parameter.value(), entry.at("values").at(parameter.key()), parameter.key());
    }
  }
}

inline void expect_training_step(const json& golden) {
  for (const auto& entry : golden.at("training")) {
    const auto model = make_model(model_options(entry.at("options")));
    fill(*model);
    at::manual_seed(entry.at("seed"));
    const auto labels = torch::tensor(entry.at("labels").get<std::vector<int64_t>>());
    const auto loss = at::cross_entropy_loss(model->forward(images(entry.at("images"))), labels);
    loss.backward();
    EXPECT_NEAR(loss.item<double>(), entry.at("loss").get<double>(), 1e-4) << entry.at("options");
    ASSERT_EQ(model->parameters().size(), entry.at("gradients").size());
    for (const auto& parameter : model->named_parameters()) {
      expect_sketch(parameter.value().grad(), entry.at("gradients").at(parameter.key()), parameter.key());
    }
    ASSERT_EQ(model->buffers().size(), entry.at("statistics").size());
    for (const auto& buffer : model->named_buffers()) {
      expect_sketch(buffer.value(), entry.at("statistics").at(buffer.key()), buffer.key());
    }
  }
}

// Checks that twenty steps of gradient descent on one batch reduce the loss by more than half.
inline void expect_learns(const ModelOptions& options, const Shape& shape, double lr) {
  at::manual_seed(1);
  const auto model = make_model(options);
  const auto batch = images(shape);
  const auto labels = at::arange(shape[0]) % options.classes;
  double first = 0.0, last = 0.0;
  for (int step = 0; step <= 20; ++step) {
    const auto loss = at::cross_entropy_loss(model->forward(batch), labels);
    last = loss.item<double>();
    if (step == 0) first = last;
    model->zero_grad();
    loss.backward();
    const torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) parameter.sub_(parameter.grad(), lr);
  }
  EXPECT_NEAR(first, std::log(static_cast<double>(options.classes)), 0.5)
      << "no class is preferred at the start";
  EXPECT_LT(last, 0.5 * first);
}

}  // namespace tensorion::lab::testing
