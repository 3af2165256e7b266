#include "lab/experiments/laplacian.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

namespace tensorion::lab {
namespace {

// Returns 1 / h for a mode of size n.
double inverse_step(int64_t n) { return static_cast<double>(n + 1); }

// Applies D along the middle mode, with zeros beyond both ends.
at::Tensor differences(const at::Tensor& core) {
  return at::diff(at::constant_pad_nd(core, {0, 0, 1, 1}), 1, 1) * inverse_step(core.size(1));
}

// Applies L = D^T D along the middle mode.
at::Tensor second_differences(const at::Tensor& core) {
  return at::diff(differences(core), 1, 1) * -inverse_step(core.size(1));
}

// Returns sum_i core_i^T state core_i.
at::Tensor sandwich(const at::Tensor& state, const at::Tensor& core) {
  const int64_t rank = core.size(2);
  const auto right = at::matmul(state, core.flatten(1)).reshape({-1, rank});
  return at::matmul(core.reshape({-1, rank}).t(), right);
}

}  // namespace

double smallest_eigenvalue(int64_t d, int64_t n) {
  const double sine = std::sin(std::numbers::pi / (2 * inverse_step(n)));
  return static_cast<double>(d) * std::pow(2 * inverse_step(n) * sine, 2);
}

at::Tensor rayleigh_quotient(const TensorTrain& train) {
  const auto options = train.front().options().requires_grad(false);
  auto mass = at::ones({1, 1}, options);
  auto energy = at::zeros({1, 1}, options);
  for (const auto& core : train) {
    energy = sandwich(energy, core) + sandwich(mass, differences(core));
    mass = sandwich(mass, core);
    // Dividing both by a common factor changes neither the quotient nor its gradient.
    const auto size = mass.detach().abs().max();
    energy = energy / size;
    mass = mass / size;
  }
  return (energy / mass).squeeze();
}

double residual(const TensorTrain& train, double value) {
  // The cores of (A - value) x are (G, B; 0, G) with B = (L - value / d) G. Each mode subtracts its share of
  // the value, so that B is small at the solution.
  const auto share = value / static_cast<double>(train.size());
  TensorTrain plain, applied;
  for (size_t k = 0; k < train.size(); ++k) {
    const auto core = train[k].detach() / train[k].detach().abs().max();
    const auto own = second_differences(core) - share * core;
    const bool is_last = k + 1 == train.size();
    const auto upper = is_last ? own : at::cat({core, own}, 2);
    const auto lower = is_last ? core : at::cat({at::zeros_like(core), core}, 2);
    plain.push_back(core);
    applied.push_back(k == 0 ? upper : at::cat({upper, lower}, 0));
  }
  return norm(applied) / norm(plain);
}

}  // namespace tensorion::lab
