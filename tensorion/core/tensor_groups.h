// Groups a list of tensors by device and dtype, as required by the fast paths of the _foreach operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <tuple>
#include <vector>

namespace tensorion {

// Returns one list of indices into `tensors` for each device and dtype.
inline std::vector<std::vector<size_t>> by_device_and_dtype(at::TensorList tensors) {
  std::map<std::tuple<c10::DeviceType, int, at::ScalarType>, std::vector<size_t>> groups;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto device = tensors[i].device();
    groups[{device.type(), device.index(), tensors[i].scalar_type()}].push_back(i);
  }
  std::vector<std::vector<size_t>> result;
  for (auto& [key, indices] : groups) result.push_back(std::move(indices));
  return result;
}

// Returns the tensors at these indices, or an empty list if `tensors` is empty.
inline std::vector<at::Tensor> at_indices(at::TensorList tensors, const std::vector<size_t>& indices) {
  std::vector<at::Tensor> result;
  if (tensors.empty()) return result;
  for (const size_t i : indices) result.push_back(tensors[i]);
  return result;
}

}  // namespace tensorion
