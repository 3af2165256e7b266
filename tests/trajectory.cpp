// Performs a few steps with the C++ class and saves parameters and gradients. python/tests/test_trajectory.py
// repeats the steps in Python:
//   trajectory FILE
#include <ATen/ATen.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <fstream>
#include <iostream>

#include "tensorion/optimizer.h"

namespace {

// Returns the initial parameters as "start", and the "gradients" and "weights" of all steps.
c10::Dict<std::string, std::vector<at::Tensor>> train(const tensorion::TensorionOptions& options) {
  auto generator = at::detail::createCPUGenerator(1);
  std::vector<std::vector<int64_t>> shapes{{6, 4, 3, 3}, {64, 48, 3, 3}, {3, 4, 5}, {5, 7}, {8}};
  if (options.batch_modes().empty()) shapes.emplace_back();
  std::vector<at::Tensor> params, start, gradients, weights;
  for (const auto& shape : shapes) {
    params.push_back(at::randn(shape, generator));
    start.push_back(params.back().clone());
  }
  tensorion::Tensorion optimizer(params, options);
  for (int k = 0; k < 5; ++k) {
    for (auto& param : params) {
      param.mutable_grad() = at::randn(param.sizes(), generator);
      gradients.push_back(param.grad());
    }
    optimizer.step();
    for (const auto& param : params) weights.push_back(param.clone());
  }
  c10::Dict<std::string, std::vector<at::Tensor>> seen;
  seen.insert("start", start);
  seen.insert("gradients", gradients);
  seen.insert("weights", weights);
  return seen;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: trajectory FILE\n";
    return 2;
  }
  using tensorion::TensorionOptions;
  const std::vector<TensorionOptions> cases{
      TensorionOptions(0.02).fallback_lr(0.003),
      TensorionOptions(0.02).momentum(0.8).nesterov(true).unfolding("online").weight_decay(0.2).fallback(
          "sgd"),
      TensorionOptions(0.02).unfolding(tensorion::Modes{0}).polar("newton_schulz").min_order(2),
      TensorionOptions(0.02).batch_modes({0}).unfolding("online").nesterov(true),
  };
  c10::impl::GenericList all(c10::AnyType::get());
  for (const auto& options : cases) all.push_back(train(options));
  const auto bytes = torch::jit::pickle_save(all);
  std::ofstream(argv[1], std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return 0;
}
