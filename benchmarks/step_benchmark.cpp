// Times a step on ResNet-18's kernels, and the same step without polar factors.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include "tensorion/core/scratch_arena.h"
#include "tensorion/core/strided.h"
#include "tensorion/step.h"

namespace tensorion {
namespace {

std::vector<std::vector<int64_t>> resnet18_kernels() {
  std::vector<std::vector<int64_t>> shapes{{64, 3, 3, 3}};
  int64_t in = 64;
  for (const int64_t out : {64, 128, 256, 512}) {
    for (int block = 0; block < 2; ++block) {
      shapes.push_back({out, in, 3, 3});
      shapes.push_back({out, out, 3, 3});
      in = out;
    }
  }
  return shapes;
}

struct Tensors {
  std::vector<at::Tensor> params, grads, momenta;

  Tensors() {
    for (const auto& shape : resnet18_kernels()) {
      params.push_back(at::randn(shape));
      grads.push_back(at::randn(shape));
      momenta.push_back(at::randn(shape));
    }
  }
};

void resnet18_step(benchmark::State& state, const UnfoldingStrategy& unfolding) {
  const Tensors tensors;
  StepOptions options;
  options.unfolding = unfolding;
  for (auto _ : state) step(tensors.params, tensors.grads, tensors.momenta, options);
}

// Everything except the polar factor: momentum, unfolding, folding, weight decay and update.
void resnet18_overhead(benchmark::State& state) {
  const Tensors tensors;
  for (auto _ : state) {
    for (size_t i = 0; i < tensors.params.size(); ++i) {
      const auto& m = tensors.momenta[i];
      axpby_(0.95, m, 1, tensors.grads[i]);
      const auto unfolding = Unfolding(m.sizes(), balanced_unfolding(m.sizes()));
      const auto matrix = scratch({unfolding.rows(), unfolding.cols()}, m.options());
      copy_strided(m, unfolding.fold(matrix));
      axpby_(0.999, tensors.params[i], -0.01, unfolding.fold(matrix));
    }
  }
}

BENCHMARK_CAPTURE(resnet18_step, balanced, "balanced")->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(resnet18_step, flattened, Modes{0})->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(resnet18_step, online, "online")->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(resnet18_overhead)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tensorion
