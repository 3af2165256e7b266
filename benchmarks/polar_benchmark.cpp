// Times polar factors by shape and method, and compares their symmetric parts with a plain GEMM.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include "tensorion/polar.h"
#include "tensorion/polar/nuclear_norm_estimator.h"
#include "tensorion/polar/symmetric.h"

namespace tensorion {
namespace {

at::Tensor input(const benchmark::State& state) {
  return at::randn({state.range(0), state.range(1)}, at::detail::createCPUGenerator(1));
}

// Reports the rate as if the call were one product of an m x m and an m x n matrix.
void report_rate(benchmark::State& state) {
  const auto flops = 2.0 * static_cast<double>(state.range(0) * state.range(0) * state.range(1));
  state.counters["GEMM"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

void polar_by(benchmark::State& state, const char* method, const char* coefficients) {
  const auto a = input(state);
  const PolarOptions options{method, named_coefficients(coefficients), 5};
  for (auto _ : state) benchmark::DoNotOptimize(polar(a, options));
  report_rate(state);
}

// Five Newton-Schulz steps as in Muon, but in fp32.
void plain_newton_schulz(benchmark::State& state) {
  const auto a = input(state);
  for (auto _ : state) {
    auto x = a / a.norm();
    for (int i = 0; i < 5; ++i) {
      const auto r = at::mm(x, x.t());
      x = at::addmm(x, at::addmm(r, r, r, -4.7750, 2.0315), x, 3.4445);
    }
    benchmark::DoNotOptimize(x);
  }
  report_rate(state);
}

void gemm(benchmark::State& state) {
  const auto a = input(state);
  for (auto _ : state) benchmark::DoNotOptimize(at::mm(a, a.t()));
  report_rate(state);
}

void symmetric_product(benchmark::State& state) {
  const auto a = input(state);
  for (auto _ : state) benchmark::DoNotOptimize(gram(a));
  report_rate(state);
}

void inverse(benchmark::State& state) {
  const auto a = input(state);
  auto s = gram(a);
  s.diagonal().add_(static_cast<double>(a.size(1)));
  auto w = at::empty_like(s);
  for (auto _ : state) {
    w.copy_(s);
    benchmark::DoNotOptimize(invert_(w));
  }
  report_rate(state);
}

void nuclear_estimate(benchmark::State& state) {
  const auto a = input(state);
  for (auto _ : state) {
    NuclearNormEstimator estimate(a);
    for (int level = 0; level < 2; ++level) estimate.refine();  // enough for most unfoldings
    benchmark::DoNotOptimize(estimate.bounds());
  }
  report_rate(state);
}

// ResNet-18's balanced unfoldings, its flattened kernels, and ViT-B's patch embedding.
void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{{192, 192},
                                                                     {384, 384},
                                                                     {768, 768},
                                                                     {1536, 1536},
                                                                     {768, 1536},
                                                                     {64, 576},
                                                                     {512, 4608},
                                                                     {768, 768}}) {
    benchmark->Args({m, n});
  }
}

void small_shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->UseRealTime()->Unit(benchmark::kMillisecond)->Args({192, 192})->Args({384, 384});
}

BENCHMARK_CAPTURE(polar_by, halley, "halley", "muon")->Apply(shapes);
BENCHMARK_CAPTURE(polar_by, newton_schulz_muon, "newton_schulz", "muon")->Apply(shapes);
BENCHMARK_CAPTURE(polar_by, newton_schulz_polar_express, "newton_schulz", "polar_express")->Apply(shapes);
BENCHMARK_CAPTURE(polar_by, svd, "svd", "muon")->Apply(small_shapes);
BENCHMARK(plain_newton_schulz)->Apply(shapes);
BENCHMARK(gemm)->Apply(shapes);
BENCHMARK(symmetric_product)->Apply(shapes);
BENCHMARK(inverse)->Apply(shapes);
BENCHMARK(nuclear_estimate)->Apply(shapes);

}  // namespace
}  // namespace tensorion
