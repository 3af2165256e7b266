#include "tensorion/norms.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tensorion/core/precision.h"
#include "tensorion/norms/norm_input.h"
#include "tensorion/unfolding.h"

namespace tensorion {
namespace {

// Returns x * 2^-exponent in the dtype of the computation, which is at least float32.
at::Tensor scaled_for_compute(const at::Tensor& x, int exponent) {
  return scale_by_power_of_two(x.to(at::promote_types(x.scalar_type(), at::kFloat)), -exponent);
}

}  // namespace

at::Tensor nuclear_norm(const at::Tensor& x, at::IntArrayRef modes) {
  const NoAutocastGuard no_autocast;
  const int exponent = checked_exponent(x, "nuclear_norm");
  const bool is_scalar = x.dim() == 0 && modes.empty();
  const auto matrix = is_scalar ? x.reshape({1, 1}) : unfold(x, modes);
  const auto sum = at::linalg_svdvals(scaled_for_compute(matrix, exponent)).sum();
  return scale_by_power_of_two(sum, exponent).to(x.scalar_type());
}

at::Tensor dual_norm(const at::Tensor& x, const Family& family) {
  const NoAutocastGuard no_autocast;
  const int exponent = checked_exponent(x, "dual_norm");
  const auto members = unfoldings_of(x.sizes(), family, "dual_norm");
  const auto values = scaled_for_compute(x, exponent);
  const auto euclidean = at::linalg_vector_norm(values);
  if (x.numel() == 0 || effective_order(x.sizes()) < 2)
    return scale_by_power_of_two(euclidean, exponent).to(x.scalar_type());

  std::vector<std::pair<int64_t, Unfolding>> by_side;  // by decreasing min(rows, cols)
  for (const auto& modes : members) {
    const Unfolding unfolding(x.sizes(), modes);
    by_side.emplace_back(std::min(unfolding.rows(), unfolding.cols()), unfolding);
  }
  std::stable_sort(by_side.begin(), by_side.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  const auto frobenius = euclidean.item<double>();
  at::Tensor largest;
  for (const auto& [side, unfolding] : by_side) {
    const double bound = std::sqrt(static_cast<double>(side)) * frobenius;
    if (largest.defined() && bound <= largest.item<double>()) break;
    const auto nuclear = at::linalg_svdvals(unfolding.unfold(values)).sum();
    if (!largest.defined() || nuclear.item<double>() > largest.item<double>()) largest = nuclear;
  }
  return scale_by_power_of_two(largest, exponent).to(x.scalar_type());
}

}  // namespace tensorion
