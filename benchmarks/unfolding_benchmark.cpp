// Times unfolding, folding and the search for the balanced unfolding.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include "tensorion/unfolding.h"

namespace tensorion {
namespace {

at::Tensor kernel(const benchmark::State& state, at::MemoryFormat format) {
  return at::randn({state.range(0), state.range(0), 3, 3}).contiguous(format);
}

void unfold_and_fold(benchmark::State& state, at::MemoryFormat format) {
  const auto x = kernel(state, format);
  const Unfolding unfolding(x.sizes(), balanced_unfolding(x.sizes()));
  auto out = at::empty_like(x);
  for (auto _ : state) {
    out.copy_(unfolding.fold(unfolding.unfold(x).contiguous()));
    benchmark::DoNotOptimize(out);
  }
  state.SetBytesProcessed(state.iterations() * 2 * static_cast<int64_t>(x.nbytes()));
}

void enumerate(benchmark::State& state) {
  const std::vector<int64_t> shape(state.range(0), 2);
  for (auto _ : state) benchmark::DoNotOptimize(balanced_unfolding(shape));
}

BENCHMARK_CAPTURE(unfold_and_fold, contiguous, at::MemoryFormat::Contiguous)
    ->Arg(64)
    ->Arg(512)
    ->UseRealTime();
BENCHMARK_CAPTURE(unfold_and_fold, channels_last, at::MemoryFormat::ChannelsLast)
    ->Arg(64)
    ->Arg(512)
    ->UseRealTime();
BENCHMARK(enumerate)->DenseRange(4, 16, 4);

}  // namespace
}  // namespace tensorion
