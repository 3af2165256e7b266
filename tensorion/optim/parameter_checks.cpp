#include "tensorion/optim/parameter_checks.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <tuple>

namespace tensorion {
namespace {

void check_parameter(const at::Tensor& param, const std::string& name) {
  TORCH_CHECK_VALUE(param.defined(), "[tensorion.Tensorion] ", name, " is undefined");
  TORCH_CHECK_TYPE(at::isFloatingType(param.scalar_type()) && !at::isFloat8Type(param.scalar_type()),
                   "[tensorion.Tensorion] expected real floating-point parameters, got ", param.scalar_type(),
                   " for ", name);
  TORCH_CHECK_VALUE(param.layout() == at::kStrided, "[tensorion.Tensorion] expected dense parameters, got ",
                    param.layout(), " for ", name);
  TORCH_CHECK_VALUE(at::has_internal_overlap(param) != at::MemOverlap::Yes,
                    "[tensorion.Tensorion] several elements of ", name, " share one memory location");
}

// The memory of a non-overlapping and dense tensor.
struct Span {
  c10::Device device;
  const char* begin;
  const char* end;
  size_t index;
};

// Returns the memory of the parameters that are dense and not empty.
std::vector<Span> spans(at::TensorList params) {
  std::vector<Span> found;
  for (size_t i = 0; i < params.size(); ++i) {
    const auto& param = params[i];
    const bool in_memory = param.numel() > 0 && param.has_storage() && !param.storage().device().is_meta();
    if (!in_memory || !param.is_non_overlapping_and_dense()) continue;
    const auto* begin = static_cast<const char*>(param.const_data_ptr());
    if (begin == nullptr) continue;  // wrapper subclasses have no memory
    found.push_back({param.device(), begin, begin + param.nbytes(), i});
  }
  return found;
}

}  // namespace

void check_parameters(at::TensorList params, at::ArrayRef<std::string> names) {
  TORCH_INTERNAL_ASSERT(params.size() == names.size());
  for (size_t i = 0; i < params.size(); ++i) check_parameter(params[i], names[i]);
  auto sorted = spans(params);
  const auto key = [](const Span& span) {
    return std::tuple(span.device.type(), span.device.index(), reinterpret_cast<uintptr_t>(span.begin),
                      span.index);
  };
  std::sort(sorted.begin(), sorted.end(), [&](const Span& a, const Span& b) { return key(a) < key(b); });
  for (size_t i = 1; i < sorted.size(); ++i) {
    const auto& before = sorted[i - 1];
    const auto& after = sorted[i];
    TORCH_CHECK_VALUE(before.device != after.device || before.end <= after.begin, "[tensorion.Tensorion] ",
                      names[std::min(before.index, after.index)], " and ",
                      names[std::max(before.index, after.index)], " share memory");
  }
}

}  // namespace tensorion
