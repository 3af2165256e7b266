// The scale of the update, by the option adjust_lr_fn.
#include <algorithm>
#include <cmath>

#include "tensorion/step.h"

namespace tensorion {

double adjusted_scale(const Unfolding& unfolding, const std::string& adjust_lr_fn) {
  const auto m = static_cast<double>(unfolding.rows());
  const auto n = static_cast<double>(unfolding.cols());
  if (adjust_lr_fn == "match_rms_adamw") return 0.2 * std::sqrt(std::max(m, n));
  if (adjust_lr_fn == "original") return std::sqrt(std::max(1.0, m / std::max(1.0, n)));
  if (adjust_lr_fn == "spectral_unclamped") return std::sqrt(m / std::max(1.0, n));
  double taps = 1;  // "conv_radius"
  for (size_t mode = 2; mode < unfolding.shape().size(); ++mode)
    taps *= static_cast<double>(unfolding.shape()[mode]);
  return 1 / std::sqrt(std::max(1.0, taps));
}

}  // namespace tensorion
