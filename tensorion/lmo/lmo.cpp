#include "tensorion/lmo.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tensorion/core/precision.h"
#include "tensorion/core/strided.h"
#include "tensorion/lmo/direction.h"
#include "tensorion/lmo/unfolding_search.h"

namespace tensorion {
namespace {

// The tensor m times 2^-exponent.
struct ScaledTensor {
  at::Tensor m;
  int exponent = 0;
};

// Rescales m if squares of its elements could overflow or underflow in double precision.
ScaledTensor avoid_overflow(const at::Tensor& m) {
  if (m.numel() == 0) return {m};
  const double norm = std::sqrt(inner_product(m, m));
  if (norm > 1e-140 && norm < 1e140) return {m};
  const double largest = m.abs().max().item<double>();
  if (largest == 0 || !std::isfinite(largest)) return {m};
  const int exponent = std::ilogb(largest);
  return {scale_by_power_of_two(m.to(at::kDouble), -exponent), exponent};
}

// Returns true if the polar factor can reuse the computations of the search.
bool uses_estimator(const Contender& winner, const PolarOptions& polar) {
  return resolve_polar_method(polar.method, winner.estimator.matrix()) == "halley";
}

// Returns the polar factor of the selected unfolding. Consumes its estimator.
PolarFactor factor_of(Contender& winner, const PolarOptions& polar) {
  return uses_estimator(winner, polar) ? std::move(winner.estimator).factor()
                                       : certified_polar(winner.estimator.matrix(), polar);
}

// Returns the same polar factor without bounds, which may be cheaper. Consumes the estimator.
at::Tensor direction_of(Contender& winner, const PolarOptions& polar) {
  return uses_estimator(winner, polar) ? std::move(winner.estimator).factor().x
                                       : polar_scratch(winner.estimator.matrix(), polar);
}

}  // namespace

LmoResult lmo(const at::Tensor& m, const UnfoldingStrategy& unfolding, const PolarOptions& polar,
              const Family& family) {
  const NoAutocastGuard no_autocast;
  TORCH_CHECK_TYPE(at::isFloatingType(m.scalar_type()) && !at::isFloat8Type(m.scalar_type()),
                   "[tensorion.lmo] expected a real floating-point tensor, got ", m.scalar_type());
  TORCH_CHECK_VALUE(m.layout() == at::kStrided, "[tensorion.lmo] expected a dense tensor, got ", m.layout());
  polar.check();
  TORCH_CHECK_VALUE(family.empty() || unfolding.is_online(),
                    "[tensorion.lmo] family requires unfolding 'online', got '", unfolding.str(), "'");
  unfoldings_of(m.sizes(), family, "lmo");
  if (!m.is_cpu()) {
    // Bounds are numbers on the host, so each would synchronize with the device.
    auto result = lmo(m.detach().cpu(), unfolding, polar, family);
    result.x = result.x.to(m.device());
    return result;
  }
  const auto [input, exponent] = avoid_overflow(m.detach());
  LmoResult result;
  double upper = 0;
  if (unfolding.is_online() && m.numel() > 0) {
    auto [winner, others, solved] = select_unfolding(input, Comparison::kBounds, family);
    const double search_upper = winner.estimator.bounds().upper;
    const auto factor = factor_of(winner, polar);
    result.x = winner.fold(factor.x).clone();
    result.modes = winner.unfolding.modes();
    result.solved = solved;
    result.value = factor.value;
    upper = std::max({factor.value, std::min(search_upper, factor.nuclear.upper), others});
  } else {
    const auto chosen = unfolding.choose(m.sizes());
    const auto factor = certified_polar(chosen.unfold(input), polar);
    result.x = chosen.fold(factor.x).clone();
    result.modes = chosen.modes();
    result.solved = 1;
    result.value = factor.value;
    // The optimum is the maximum over all unfoldings, so include the cheap bounds of the others.
    upper = factor.nuclear.upper;
    if (m.numel() > 0) {
      for (const auto& other : candidates(input)) {
        if (other.unfolding.modes() != chosen.canonical()) upper = std::max(upper, other.upper);
      }
    }
  }
  result.x = result.x.to(m.scalar_type());
  // If the value overflows, the largest finite number is still a lower bound. An upper bound must not be
  // clamped.
  result.value = std::min(std::ldexp(result.value, exponent), std::numeric_limits<double>::max());
  result.upper = std::ldexp(upper, exponent);
  return result;
}

Direction lmo_direction(const at::Tensor& m, const UnfoldingStrategy& unfolding, const PolarOptions& polar) {
  const NoAutocastGuard no_autocast;
  if (unfolding.is_online() && m.numel() > 0) {
    auto winner = select_unfolding(avoid_overflow(m).m, Comparison::kEstimates).winner;
    return {winner.fold(direction_of(winner, polar)), winner.unfolding};
  }
  const auto chosen = unfolding.choose(m.sizes());
  return {chosen.fold(polar_scratch(gather(chosen, m), polar)), chosen};
}

}  // namespace tensorion
