// Lists of tensors, as torch's operators for lists take them: of one device and dtype.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <tuple>
#include <vector>

namespace tensorion {

// The indices of the tensors of each device and dtype.
inline std::vector<std::vector<size_t>> by_device_and_dtype(at::TensorList tensors) {
  std::map<std::tuple<c10::DeviceType, int, at::ScalarType>, std::vector<size_t>> groups;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto device = tensors[i].device();
    groups[{device.type(), device.index(), tensors[i].scalar_type()}].push_back(i);
  }
  std::vector<std::vector<size_t>> found;
  for (auto& [key, indices] : groups) found.push_back(std::move(indices));
  return found;
}

// The tensors at these indices; none of an empty list.
inline std::vector<at::Tensor> at_indices(at::TensorList tensors, const std::vector<size_t>& indices) {
  std::vector<at::Tensor> found;
  if (tensors.empty()) return found;
  for (const size_t i : indices) found.push_back(tensors[i]);
  return found;
}

}  // namespace tensorion
