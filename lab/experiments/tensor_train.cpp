#include "lab/experiments/tensor_train.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace tensorion::lab {
namespace {

// Returns min(rank, n^count) without overflow.
int64_t largest_rank(int64_t rank, int64_t n, int64_t count) {
  int64_t size = 1;
  for (int64_t k = 0; k < count && size < rank; ++k) size *= n;
  return std::min(rank, size);
}

}  // namespace

TensorTrain random_train(int64_t d, int64_t n, int64_t rank, uint64_t seed, at::ScalarType dtype) {
  TORCH_CHECK_VALUE(d >= 1 && n >= 1 && rank >= 1,
                    "[tensorion.random_train] d, n and rank must be at least 1, got ", d, ", ", n, ", ",
                    rank);
  const auto ranks = [&](int64_t k) { return largest_rank(rank, n, std::min(k, d - k)); };
  auto generator = at::detail::createCPUGenerator(seed);
  TensorTrain train;
  for (int64_t k = 0; k < d; ++k) {
    const auto core = at::randn({ranks(k), n, ranks(k + 1)}, generator, at::TensorOptions(at::kDouble));
    train.push_back((core / std::sqrt(static_cast<double>(ranks(k) * n))).to(dtype));
  }
  return train;
}

double norm(const TensorTrain& train) {
  // The product of the cores so far is Q carry times a scale, where Q has orthonormal columns. The logarithm
  // of the scale is kept separately to avoid overflow.
  double log_size = 0;
  at::Tensor carry = at::ones({1, 1}, train.front().options());
  for (const auto& core : train) {
    const auto matrix = at::matmul(carry, core.flatten(1)).reshape({-1, core.size(2)});
    carry = std::get<1>(at::linalg_qr(matrix, "r"));
    const auto size = carry.abs().max();
    const auto value = size.item<double>();
    if (value == 0 || !std::isfinite(value)) return value;
    carry = carry / size;
    log_size += std::log(value);
  }
  return std::exp(log_size) * at::linalg_vector_norm(carry).item<double>();
}

}  // namespace tensorion::lab
