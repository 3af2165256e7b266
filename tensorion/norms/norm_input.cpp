#include "tensorion/norms/norm_input.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensorion/core/precision.h"

namespace tensorion {

int checked_exponent(const at::Tensor& x, const char* name) {
  const auto dtype = x.scalar_type();
  TORCH_CHECK_TYPE(
      dtype == at::kBFloat16 || dtype == at::kHalf || dtype == at::kFloat || dtype == at::kDouble,
      "[tensorion.", name, "] expected a tensor of dtype BFloat16, Half, Float or Double, got ", dtype);
  TORCH_CHECK_VALUE(x.layout() == at::kStrided, "[tensorion.", name, "] expected a dense tensor, got ",
                    x.layout());
  if (x.numel() == 0) return 0;
  const auto largest = x.detach().abs().max().item<double>();
  TORCH_CHECK_VALUE(std::isfinite(largest), "[tensorion.", name, "] expected finite values, got ",
                    std::isnan(largest) ? "nan" : "inf", " in a tensor of shape ", x.sizes());
  int exponent = 0;
  std::frexp(largest, &exponent);
  return exponent;
}

NormInput norm_input(const at::Tensor& x, const char* name) {
  const int exponent = checked_exponent(x, name);
  const auto values = x.detach().to(at::TensorOptions().device(at::kCPU).dtype(at::kDouble));
  return {scale_by_power_of_two(values, -exponent).squeeze().contiguous(), exponent};
}

NormBounds norm_bounds(const NormInput& input, double lower, double upper) {
  const double slack =
      std::numeric_limits<double>::epsilon() * (32.0 + static_cast<double>(input.values.numel()));
  // If the norm overflows, the largest finite number is a lower bound, but the upper bound must be infinite.
  return {std::min(std::ldexp(lower * (1 - slack), input.exponent), std::numeric_limits<double>::max()),
          std::ldexp(upper * (1 + slack), input.exponent)};
}

}  // namespace tensorion
