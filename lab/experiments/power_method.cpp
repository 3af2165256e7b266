#include "lab/experiments/power_method.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tensorion::lab {
namespace {

constexpr uint64_t kSeed = 0;
constexpr double kGain = 1e-5;  // of a sweep; all starts go on until none has more
constexpr int64_t kSweeps = 300;

// x contracted with the vectors (starts x size) of all modes but one: starts x size of that mode. The largest
// modes go first.
at::Tensor contract(const at::Tensor& x, const std::vector<at::Tensor>& vectors, int64_t kept) {
  std::vector<int64_t> modes;
  for (int64_t mode = 0; mode < x.dim(); ++mode) {
    if (mode != kept) modes.push_back(mode);
  }
  std::sort(modes.begin(), modes.end(), [&](int64_t a, int64_t b) { return x.size(a) > x.size(b); });
  std::string left;
  for (int64_t mode = 0; mode < x.dim(); ++mode) left += static_cast<char>('a' + mode);
  at::Tensor result = x;
  for (const int64_t mode : modes) {
    const auto letter = static_cast<char>('a' + mode);
    auto rest = left;
    rest.erase(rest.find(letter), 1);
    if (rest.front() != 'z') rest.insert(rest.begin(), 'z');
    const auto equation = c10::str(left, ",z", letter, "->", rest);
    result = at::einsum(equation, {result, vectors[mode]});
    left = rest;
  }
  return result;
}

}  // namespace

double spectral_norm_from_below(const at::Tensor& x, int64_t starts) {
  const auto values = x.detach().squeeze();
  if (values.dim() < 2) return at::linalg_vector_norm(values).item<double>();
  auto generator = at::detail::createCPUGenerator(kSeed);
  std::vector<at::Tensor> vectors;
  for (int64_t mode = 0; mode < values.dim(); ++mode) {
    const auto random = at::randn({starts, values.size(mode)}, generator, values.options());
    vectors.push_back(random / at::linalg_vector_norm(random, 2, {1}, /*keepdim=*/true));
  }
  auto reached = at::zeros({starts}, values.options());
  for (int64_t sweep = 0; sweep < kSweeps; ++sweep) {
    const auto before = reached;
    for (int64_t mode = 0; mode < values.dim(); ++mode) {
      const auto direction = contract(values, vectors, mode);
      reached = at::linalg_vector_norm(direction, 2, {1});
      const auto norms = reached.unsqueeze(1);
      vectors[mode] = at::where(norms > 0, direction / norms, vectors[mode]);
    }
    if (at::all(reached - before <= kGain * reached).item<bool>()) break;
  }
  return reached.max().item<double>();
}

}  // namespace tensorion::lab
