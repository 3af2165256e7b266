#include "tensorion/optim/nonfinite.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensorion/core/tensor_groups.h"
#include "tensorion/step.h"

namespace tensorion {
namespace {

// Returns the index of the first tensor that is not finite, or -1. All tensors are on the CPU.
int64_t first_nonfinite_on_cpu(at::TensorList tensors) {
  const auto found = std::find_if_not(tensors.begin(), tensors.end(), is_finite);
  return found == tensors.end() ? -1 : found - tensors.begin();
}

bool are_on_cpu(at::TensorList tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& x) { return x.is_cpu(); });
}

// Returns a bool tensor on the device of the first tensor: for each tensor, whether it has an element that is
// not finite. Tensors of the same device and dtype are checked in one kernel launch.
at::Tensor nonfinite_flags(at::TensorList tensors) {
  std::vector<at::Tensor> flags(tensors.size());
  at::Tensor of_group;
  for (auto& indices : by_device_and_dtype(tensors)) {
    auto group = at_indices(tensors, indices);
    // The maximum norm is not defined for empty tensors.
    for (auto& tensor : group) {
      if (tensor.numel() == 0) tensor = at::zeros({1}, tensor.options());
    }
    const auto norms = at::stack(at::_foreach_norm(group, INFINITY));
    of_group = (norms - norms).ne(0).to(tensors[0].device());  // NaN and infinity give NaN
    const auto each = of_group.unbind();
    for (size_t i = 0; i < indices.size(); ++i) flags[indices[i]] = each[i];
  }
  return of_group.numel() == static_cast<int64_t>(tensors.size()) ? of_group : at::stack(flags);
}

double largest_finite(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return std::numeric_limits<double>::max();
    case at::kHalf: return 65504.0;
    case at::kBFloat16: return 3.3895313892515355e38;
    default: return std::numeric_limits<float>::max();
  }
}

}  // namespace

void clamp_overflow_(at::TensorList tensors) {
  const double limit = largest_finite(tensors[0].scalar_type());
  at::_foreach_clamp_max_(tensors, limit);
  at::_foreach_clamp_min_(tensors, -limit);
}

bool is_finite(const at::Tensor& x) {
  // If the sum is finite, so is every element. If it is not, it may have overflowed, so elements are checked.
  return std::isfinite(x.sum(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).item<double>()) ||
         x.isfinite().all().item<bool>();
}

at::Tensor first_nonfinite(at::TensorList tensors) {
  if (are_on_cpu(tensors)) return at::scalar_tensor(first_nonfinite_on_cpu(tensors), at::kLong);
  const auto flags = nonfinite_flags(tensors);
  return at::where(flags.any(), flags.to(at::kFloat).argmax(), -1);
}

at::Tensor any_nonfinite(at::TensorList tensors) {
  TORCH_CHECK_VALUE(!tensors.empty(), "[tensorion.step] expected at least one tensor, got none");
  if (are_on_cpu(tensors))
    return at::scalar_tensor(first_nonfinite_on_cpu(tensors) < 0 ? 0.0 : 1.0, at::kFloat);
  return nonfinite_flags(tensors).any().to(at::kFloat);
}

}  // namespace tensorion
