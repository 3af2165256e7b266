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

// m times 2^-exponent; the exponent is not 0 if squares of entries would leave the range of a double.
struct Moderate {
  at::Tensor m;
  int exponent = 0;
};

Moderate moderate(const at::Tensor& m) {
  if (m.numel() == 0) return {m};
  const double norm = std::sqrt(inner_product(m, m));
  if (norm > 1e-140 && norm < 1e140) return {m};
  const double largest = m.abs().max().item<double>();
  if (largest == 0 || !std::isfinite(largest)) return {m};
  const int exponent = std::ilogb(largest);
  return {scale_by_power_of_two(m.to(at::kDouble), -exponent), exponent};
}

bool uses_estimator(const Contender& winner, const PolarOptions& polar) {
  return resolve_polar_method(polar.method, winner.estimator.matrix()) == "halley";
}

// The polar factor of the unfolding that won. Its estimator is used up.
PolarFactor factor_of(Contender& winner, const PolarOptions& polar) {
  return uses_estimator(winner, polar) ? std::move(winner.estimator).factor()
                                       : certified_polar(winner.estimator.matrix(), polar);
}

// The same without a certificate.
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
                    "[tensorion.lmo] family goes with unfolding \"online\" only, got ", unfolding.str());
  unfoldings_of(m.sizes(), family, "lmo");
  if (!m.is_cpu()) {
    // Certificates need values: on another device each would be a read from there.
    auto result = lmo(m.detach().cpu(), unfolding, polar, family);
    result.x = result.x.to(m.device());
    return result;
  }
  const auto [input, exponent] = moderate(m.detach());
  LmoResult result;
  double upper = 0;
  if (unfolding.is_online() && m.numel() > 0) {
    auto [winner, others, solved] = select_unfolding(input, family);
    const double own = winner.estimator.bounds().upper;
    const auto factor = factor_of(winner, polar);
    result.x = winner.fold(factor.x).clone();
    result.modes = winner.modes;
    result.solved = solved;
    result.value = factor.value;
    upper = std::max({factor.value, std::min(own, factor.nuclear.upper), others});
  } else {
    const auto chosen = unfolding.choose(m.sizes());
    const auto factor = certified_polar(chosen.unfold(input), polar);
    result.x = chosen.fold(factor.x).clone();
    result.modes = chosen.modes();
    result.solved = 1;
    result.value = factor.value;
    // The optimum is over all unfoldings: those that were not solved count with their cheap bound.
    upper = factor.nuclear.upper;
    if (m.numel() > 0) {
      for (const auto& other : candidates(input)) {
        if (other.unfolding.modes() != chosen.canonical()) upper = std::max(upper, other.upper);
      }
    }
  }
  result.x = result.x.to(m.scalar_type());
  // A lower bound may be cut off at the largest number, an upper one not.
  result.value = std::min(std::ldexp(result.value, exponent), std::numeric_limits<double>::max());
  result.upper = std::ldexp(upper, exponent);
  return result;
}

Direction lmo_direction(const at::Tensor& m, const UnfoldingStrategy& unfolding, const PolarOptions& polar) {
  const NoAutocastGuard no_autocast;
  if (unfolding.is_online() && m.numel() > 0) {
    auto winner = select_unfolding(moderate(m).m).winner;
    return {winner.fold(direction_of(winner, polar)), winner.unfolding};
  }
  auto chosen = unfolding.choose(m.sizes());
  if (!chosen.is_view(m)) chosen = chosen.reordered();
  return {chosen.fold(polar_scratch(gather(chosen, m), polar)), chosen};
}

}  // namespace tensorion
