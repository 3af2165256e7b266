// Unfoldings (matricizations) of tensors.
//
// The unfolding of a tensor x by a set of modes tau is a matrix. The modes in tau form its rows, the other
// modes its columns, both in ascending order and row-major:
//   unfold(x, tau)[j_tau, j_rest] = x[j_0, ..., j_{d-1}].
// The unfoldings by tau and by its complement are transposes of each other and count as one unfolding. Modes
// (dimensions) are 0-based. Modes of size 1 do not change the unfolding; the effective order is the number of
// the other modes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tensorion {

using Modes = std::vector<int64_t>;

// The largest effective order d whose 2^(d-1) - 1 unfoldings can be enumerated.
inline constexpr int64_t kMaxOrder = 24;

// Returns the number of modes whose size is not 1.
int64_t effective_order(at::IntArrayRef shape);

// Returns the order that is compared with the optimizer's min_order: the number of modes without leading
// modes of size 1. A kernel of shape 512 x 256 x 1 x 1 has order 4, a positional embedding of shape 1 x 197 x
// 384 has order 2.
int64_t parameter_order(at::IntArrayRef shape);

// An unfolding of tensors of a given shape.
class Unfolding {
 public:
  // `modes` form the rows, in ascending order. Throws if they are not distinct, if a mode is out of range, or
  // if no mode is left for the rows or for the columns. As an exception, a vector has the unfolding {0},
  // which is a single column.
  Unfolding(at::IntArrayRef shape, at::IntArrayRef modes);

  const Modes& modes() const { return modes_; }
  // Returns the set of modes by which `unfoldings` lists this unfolding or its transpose. It is empty if the
  // rows or the columns have no mode larger than 1.
  Modes canonical() const;
  const std::vector<int64_t>& shape() const { return shape_; }
  // The modes of the rows and of the columns, in ascending order.
  Modes row_modes() const { return {permutation_.begin(), permutation_.begin() + row_count()}; }
  Modes col_modes() const { return {permutation_.begin() + row_count(), permutation_.end()}; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

  // Returns the matrix of shape rows() x cols(). It is a view of x if the strides allow it, and a copy
  // otherwise. Throws if x has another shape or is not dense.
  at::Tensor unfold(const at::Tensor& x) const;

  // Returns true if unfold(x) is a view.
  bool is_view(const at::Tensor& x) const;

  // Returns the tensor of shape `shape()` of which `matrix` is the unfolding. It is a view of the matrix if
  // the strides allow it, and a copy otherwise. Throws if the matrix has another shape or is not dense.
  at::Tensor fold(const at::Tensor& matrix) const;

 private:
  int64_t row_count() const { return static_cast<int64_t>(modes_.size()); }

  std::vector<int64_t> shape_;
  Modes modes_;
  std::vector<int64_t> permutation_;  // the row modes, then the column modes
  int64_t rows_ = 1;
  int64_t cols_ = 1;
};

// Returns all 2^(d-1) - 1 unfoldings of a shape of effective order d. Of a set of modes and its complement,
// the list has the one with fewer modes; if both have the same number, it has the one that contains the
// lowest mode. The list is sorted by the number of modes, then lexicographically. Throws if d exceeds
// kMaxOrder.
std::vector<Modes> unfoldings(at::IntArrayRef shape);

// A set of unfoldings, each given by its modes. An empty family stands for all unfoldings of a shape.
using Family = std::vector<Modes>;

// Returns the unfoldings of a shape that are in the family, as `unfoldings` lists them and without
// duplicates. Throws if the modes of a member are not distinct or are out of range, or if its rows or its
// columns have no mode larger than 1. `name` is the name of the calling function in the error message.
std::vector<Modes> unfoldings_of(at::IntArrayRef shape, const Family& family, const char* name);

// Returns the unfolding with the largest min(rows, cols), which the paper calls tau^opt. Ties go to the first
// in the order of `unfoldings`. Throws if the effective order is below 2.
Modes balanced_unfolding(at::IntArrayRef shape);

// Returns Unfolding(x.sizes(), modes).unfold(x).
at::Tensor unfold(const at::Tensor& x, at::IntArrayRef modes);
// Returns Unfolding(shape, modes).fold(matrix), the inverse of `unfold`.
at::Tensor fold(const at::Tensor& matrix, at::IntArrayRef modes, at::IntArrayRef shape);

}  // namespace tensorion
