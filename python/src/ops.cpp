// The library as torch operators, torch.ops.tensorion.*: the only TORCH_LIBRARY.
//
// No operator returns a view of its input. Those defined with their function
// here are composites of ATen operators: autograd, fake tensors and
// torch.compile see through them.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <vector>

#include "tensorion/unfolding.h"

namespace {

using at::Tensor;

// `result` in memory of its own, contiguous. Under vmap a tensor has no
// storage to compare.
Tensor owned(const Tensor& result, const Tensor& input) {
  if (result.has_storage() && !result.is_alias_of(input)) return result.contiguous();
  return result.clone(at::MemoryFormat::Contiguous);
}

Tensor unfold(const Tensor& x, at::IntArrayRef modes) { return owned(tensorion::unfold(x, modes), x); }

Tensor fold(const Tensor& matrix, at::IntArrayRef modes, at::IntArrayRef shape) {
  return owned(tensorion::fold(matrix, modes, shape), matrix);
}

}  // namespace

TORCH_LIBRARY(tensorion, m) {
  m.def("unfoldings(int[] shape) -> int[][]", tensorion::unfoldings);
  m.def("balanced_unfolding(int[] shape) -> int[]", tensorion::balanced_unfolding);
  m.def("unfold(Tensor x, int[] modes) -> Tensor", unfold);
  m.def("fold(Tensor matrix, int[] modes, SymInt[] shape) -> Tensor", fold);
}
