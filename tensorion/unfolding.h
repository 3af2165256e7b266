// Unfoldings: a tensor seen as a matrix.
//
// The tau-unfolding of a tensor x puts the modes in tau into the rows and the
// others into the columns, both in ascending order and row-major:
//   unfold(x, tau)[j_tau, j_rest] = x[j_0, ..., j_{d-1}].
// tau and its complement give transposes of each other, hence one unfolding.
// Modes are 0-based; modes of size 1 do not count (the effective order).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tensorion {

using Modes = std::vector<int64_t>;

// Beyond this effective order enumerating 2^(d-1) - 1 unfoldings is refused.
inline constexpr int64_t kMaxOrder = 24;

// The number of modes whose size is not 1.
int64_t effective_order(at::IntArrayRef shape);

// The order of a parameter, which the optimizer's min_order is about: the number of its modes after leading
// modes of size 1 are dropped. A 512 x 256 x 1 x 1 kernel has order 4, a 1 x 197 x 384 positional
// embedding 2.
int64_t parameter_order(at::IntArrayRef shape);

// One unfolding of tensors of one shape.
class Unfolding {
 public:
  // `modes` become the rows, in ascending order whatever order they come in.
  // They must be distinct, in range, and neither none nor all of the modes
  // (but a vector has the unfolding {0}: itself as a column).
  Unfolding(at::IntArrayRef shape, at::IntArrayRef modes);

  const Modes& modes() const { return modes_; }
  // The set that `unfoldings` lists for this unfolding or its transpose; empty if one side has no
  // effective mode.
  Modes canonical() const;
  const std::vector<int64_t>& shape() const { return shape_; }
  // The modes of the rows and of the columns in the order of unfold's matrices.
  Modes row_modes() const { return {permutation_.begin(), permutation_.begin() + row_count()}; }
  Modes col_modes() const { return {permutation_.begin() + row_count(), permutation_.end()}; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

  // rows x cols. A view of x if its strides allow one, else a copy.
  at::Tensor unfold(const at::Tensor& x) const;

  // Whether unfold(x) is a view.
  bool is_view(const at::Tensor& x) const;

  // The same unfolding with the modes of either side by increasing size: what has the longest runs in memory,
  // and so is copied fastest. Its matrices are those of this one with rows and columns in another order.
  Unfolding reordered() const;

  // The inverse of unfold, of shape `shape()`; a view if strides allow.
  at::Tensor fold(const at::Tensor& matrix) const;

 private:
  int64_t row_count() const { return static_cast<int64_t>(modes_.size()); }

  std::vector<int64_t> shape_;
  Modes modes_;
  std::vector<int64_t> permutation_;  // the row modes, then the column modes
  int64_t rows_ = 1;
  int64_t cols_ = 1;
};

// All 2^(d-1) - 1 unfoldings of a shape of effective order d, each by its
// canonical set: the side with fewer modes, on equal count the one that holds
// the lowest mode. By number of modes, then lexicographic.
std::vector<Modes> unfoldings(at::IntArrayRef shape);

// A family of unfoldings, by sets of modes. An empty one stands for all unfoldings of a shape.
using Family = std::vector<Modes>;

// The unfoldings of a shape that are in the family, each once, by their canonical sets. Throws, in the name
// of the function `name`, unless all sets are distinct modes in range that leave a mode larger than 1 on
// either side.
std::vector<Modes> unfoldings_of(at::IntArrayRef shape, const Family& family, const char* name);

// The unfolding with the largest min(rows, cols), the first in the order of
// `unfoldings` among equals: the paper's tau^opt. Needs effective order >= 2.
Modes balanced_unfolding(at::IntArrayRef shape);

at::Tensor unfold(const at::Tensor& x, at::IntArrayRef modes);
at::Tensor fold(const at::Tensor& matrix, at::IntArrayRef modes, at::IntArrayRef shape);

}  // namespace tensorion
