// Lower bounds of the tensor spectral norm from the higher-order power method. If all vectors but u_k are
// fixed, the best u_k is the normalized contraction of x with the others. So the value <x, u_1 (x) ... (x)
// u_d> never decreases.
#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tensorion/core/precision.h"
#include "tensorion/norms.h"
#include "tensorion/norms/norm_input.h"
#include "tensorion/unfolding.h"

namespace tensorion {
namespace {

constexpr double kRelaxationTolerance = 1e-4;
constexpr uint64_t kSeed = 0;
constexpr int64_t kMaxRestarts = 1'000'000;  // limits memory: all starts run in one batch

// In the first phase all starts run until the relative gain of each sweep is below kRaceGain. In the second
// phase the best start runs until its gain is below kPolishGain.
constexpr double kRaceGain = 1e-6;
constexpr double kGainFromBelow = 1e-5;
constexpr int64_t kRaceSweeps = 200;
constexpr double kPolishGain = 1e-14;
constexpr int64_t kPolishSweeps = 2000;

// Row i of factor k is the vector u_k of start i.
using Factors = std::vector<at::Tensor>;

// For every start, contracts x with all vectors except the one of `mode`. The largest modes come first,
// because this makes the intermediate results smallest.
at::Tensor contract(const at::Tensor& x, const Factors& factors, int64_t mode) {
  std::vector<int64_t> others;
  std::string left;
  for (int64_t k = 0; k < x.dim(); ++k) {
    left += static_cast<char>('a' + k);
    if (k != mode) others.push_back(k);
  }
  std::stable_sort(others.begin(), others.end(), [&](int64_t a, int64_t b) { return x.size(a) > x.size(b); });
  auto result = x;
  for (const int64_t k : others) {
    const auto letter = static_cast<char>('a' + k);
    auto rest = left;
    rest.erase(rest.find(letter), 1);
    if (rest.front() != 'z') rest.insert(rest.begin(), 'z');
    result = at::einsum(c10::str(left, ",z", letter, "->", rest), {result, factors[k]});
    left = rest;
  }
  return result;
}

// Sweeps over the modes until the relative gain of every start is at most `gain`, or for at most `sweeps`
// sweeps. Updates the factors and returns the values.
at::Tensor power_method(const at::Tensor& x, Factors& factors, double gain, int64_t sweeps) {
  auto values = at::zeros({factors[0].size(0)}, x.options().dtype(at::kDouble));
  for (int64_t sweep = 0; sweep < sweeps; ++sweep) {
    const auto before = values;
    for (int64_t mode = 0; mode < x.dim(); ++mode) {
      const auto direction = contract(x, factors, mode);
      values = at::linalg_vector_norm(direction, 2, {1});
      // If the contraction is zero, the vector is kept.
      const auto norms = values.unsqueeze(1);
      factors[mode] = at::where(norms > 0, direction.conj() / norms, factors[mode]);
    }
    if (at::all(values - before <= gain * values).item<bool>()) break;
  }
  return values;
}

// Returns the leading left singular vector, computed from the smaller Gram matrix.
at::Tensor leading_vector(const at::Tensor& matrix) {
  const bool tall = matrix.size(0) > matrix.size(1);
  const auto gram = tall ? at::matmul(matrix.mH(), matrix) : at::matmul(matrix, matrix.mH());
  auto vector = std::get<1>(at::linalg_eigh(gram)).select(1, -1);
  if (!tall) return vector;
  const auto image = at::mv(matrix, vector);
  return image / at::linalg_vector_norm(image).clamp_min(std::numeric_limits<double>::min());
}

// Returns `restarts` rows of random unit vectors and, in the last row, the leading singular vector of each
// unfolding {k} (the higher-order SVD).
Factors initial_factors(const at::Tensor& x, int64_t restarts) {
  auto generator = at::detail::createCPUGenerator(kSeed);
  Factors factors;
  for (int64_t mode = 0; mode < x.dim(); ++mode) {
    const auto random = at::randn({restarts, x.size(mode)}, generator, x.options());
    factors.push_back(at::cat({random / at::linalg_vector_norm(random, 2, {1}, /*keepdim=*/true),
                               leading_vector(unfold(x, {mode})).unsqueeze(0)}));
  }
  return factors;
}

void check_restarts(int64_t restarts, const char* name) {
  TORCH_CHECK_VALUE(restarts >= 1, "[tensorion.", name, "] restarts must be at least 1, got ", restarts);
  TORCH_CHECK_VALUE(restarts <= kMaxRestarts, "[tensorion.", name, "] restarts must be at most ",
                    kMaxRestarts, ", got ", restarts);
}

}  // namespace

NormBounds spectral_norm(const at::Tensor& x, int64_t restarts, const std::string& field) {
  const NoAutocastGuard no_autocast;
  check_restarts(restarts, "spectral_norm");
  TORCH_CHECK_VALUE(field == "real" || field == "complex",
                    "[tensorion.spectral_norm] field must be 'real' or 'complex', got '", field, "'");
  const auto input = norm_input(x, "spectral_norm");
  if (input.values.dim() <= 2) return relaxed_norm(x);
  const double upper = relaxed_norm(input.values, kRelaxationTolerance).upper;
  if (upper == 0) return {0, 0};
  // Matrices, which have the same norm over both fields, are handled above. The starts are complex because
  // real ones would stay real.
  const auto tensor = field == "complex" ? input.values.to(at::kComplexDouble) : input.values;
  auto factors = initial_factors(tensor, restarts);
  const auto values = power_method(tensor, factors, kRaceGain, kRaceSweeps);
  const auto best = values.argmax().item<int64_t>();
  for (auto& factor : factors) factor = factor.narrow(0, best, 1);
  const auto value = power_method(tensor, factors, kPolishGain, kPolishSweeps).item<double>();
  return norm_bounds(input, value, upper);
}

double spectral_norm_from_below(const at::Tensor& x, int64_t restarts) {
  const NoAutocastGuard no_autocast;
  check_restarts(restarts, "spectral_norm_from_below");
  const auto input = norm_input(x, "spectral_norm_from_below");
  if (input.values.dim() <= 2) return relaxed_norm(x).lower;
  if (x.numel() == 0) return 0;
  auto factors = initial_factors(input.values, restarts);
  const double value = power_method(input.values, factors, kGainFromBelow, kRaceSweeps).max().item<double>();
  return norm_bounds(input, value, value).lower;
}

}  // namespace tensorion
