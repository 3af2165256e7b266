#include "tensorion/unfolding.h"

#include <ATen/ATen.h>
#include <ATen/TensorUtils.h>
#include <c10/util/safe_numerics.h>

#include <algorithm>
#include <set>

namespace tensorion {
namespace {

// Throws if a size is negative or if the number of elements overflows.
void check_shape(at::IntArrayRef shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) {
    TORCH_CHECK_VALUE(size >= 0, "[tensorion.unfold] sizes must not be negative, got shape ", shape);
    // The other sizes of an empty tensor are checked too, because they give the number of rows or columns.
    TORCH_CHECK_VALUE(!c10::mul_overflows(elements, std::max<int64_t>(size, 1), &elements),
                      "[tensorion.unfold] a tensor must have fewer than 2^63 elements, got shape ", shape);
  }
}

// Returns the modes whose size is not 1, in ascending order.
Modes effective_modes(at::IntArrayRef shape) {
  check_shape(shape);
  Modes modes;
  for (int64_t mode = 0; mode < static_cast<int64_t>(shape.size()); ++mode) {
    if (shape[mode] != 1) modes.push_back(mode);
  }
  TORCH_CHECK_VALUE(static_cast<int64_t>(modes.size()) <= kMaxOrder, "[tensorion.unfoldings] at most ",
                    kMaxOrder, " modes of size other than 1 are supported, got ", modes.size(), " in shape ",
                    shape);
  return modes;
}

// Calls visit(modes) for every unfolding, in the order of `unfoldings`.
template <typename Visit>
void for_each_unfolding(at::IntArrayRef shape, Visit visit) {
  const Modes effective = effective_modes(shape);
  const auto d = static_cast<int64_t>(effective.size());
  for (int64_t count = 1; 2 * count <= d; ++count) {
    // Enumerate the combinations of `count` out of d positions in lexicographic order.
    std::vector<int64_t> chosen(count);
    for (int64_t i = 0; i < count; ++i) chosen[i] = i;
    while (true) {
      // Sets of d / 2 modes without the lowest mode are complements of sets that have been visited.
      if (2 * count == d && chosen[0] != 0) break;
      Modes modes(count);
      for (int64_t i = 0; i < count; ++i) modes[i] = effective[chosen[i]];
      visit(std::move(modes));
      int64_t i = count - 1;
      while (i >= 0 && chosen[i] == d - count + i) --i;
      if (i < 0) break;
      ++chosen[i];
      for (int64_t j = i + 1; j < count; ++j) chosen[j] = chosen[j - 1] + 1;
    }
  }
}

}  // namespace

int64_t effective_order(at::IntArrayRef shape) {
  return std::count_if(shape.begin(), shape.end(), [](int64_t size) { return size != 1; });
}

int64_t parameter_order(at::IntArrayRef shape) {
  return shape.end() - std::find_if(shape.begin(), shape.end(), [](int64_t size) { return size != 1; });
}

Unfolding::Unfolding(at::IntArrayRef shape, at::IntArrayRef modes)
    : shape_(shape.vec()), modes_(modes.vec()) {
  const auto d = static_cast<int64_t>(shape_.size());
  check_shape(shape);
  std::sort(modes_.begin(), modes_.end());
  for (const int64_t mode : modes_) {
    TORCH_CHECK_VALUE(mode >= 0 && mode < d, "[tensorion.unfold] mode must be in [0, ", d, "), got ", mode,
                      " for shape ", shape);
  }
  TORCH_CHECK_VALUE(std::adjacent_find(modes_.begin(), modes_.end()) == modes_.end(),
                    "[tensorion.unfold] modes must be distinct, got ", modes);
  TORCH_CHECK_VALUE(!modes_.empty(), "[tensorion.unfold] at least one mode is needed for the rows, got none");
  TORCH_CHECK_VALUE(static_cast<int64_t>(modes_.size()) < std::max<int64_t>(d, 2),
                    "[tensorion.unfold] at least one mode must be left for the columns, got all ", d,
                    " modes of shape ", shape);
  permutation_ = modes_;
  for (int64_t mode = 0; mode < d; ++mode) {
    const bool is_row = std::binary_search(modes_.begin(), modes_.end(), mode);
    if (!is_row) permutation_.push_back(mode);
    (is_row ? rows_ : cols_) *= shape_[mode];
  }
}

Modes Unfolding::canonical() const {
  Modes rows, cols;
  for (const int64_t mode : effective_modes(shape_)) {
    (std::binary_search(modes_.begin(), modes_.end(), mode) ? rows : cols).push_back(mode);
  }
  const bool rows_first = rows.size() != cols.size() ? rows.size() < cols.size() : rows < cols;
  return rows_first ? rows : cols;
}

bool Unfolding::is_view(const at::Tensor& x) const {
  const auto permuted = x.permute(permutation_);
  const int64_t matrix[] = {rows_, cols_};
  return at::detail::computeStride(permuted.sizes(), permuted.strides(), at::IntArrayRef(matrix)).has_value();
}

at::Tensor Unfolding::unfold(const at::Tensor& x) const {
  TORCH_CHECK_VALUE(x.sizes() == at::IntArrayRef(shape_), "[tensorion.unfold] expected a tensor of shape ",
                    at::IntArrayRef(shape_), ", got ", x.sizes());
  TORCH_CHECK_VALUE(x.layout() == at::kStrided, "[tensorion.unfold] expected a dense tensor, got ",
                    x.layout());
  return x.permute(permutation_).reshape({rows_, cols_});
}

at::Tensor Unfolding::fold(const at::Tensor& matrix) const {
  TORCH_CHECK_VALUE(matrix.dim() == 2 && matrix.size(0) == rows_ && matrix.size(1) == cols_,
                    "[tensorion.fold] modes ", at::IntArrayRef(modes_), " of shape ", at::IntArrayRef(shape_),
                    " unfold to a matrix of shape [", rows_, ", ", cols_, "], got ", matrix.sizes());
  TORCH_CHECK_VALUE(matrix.layout() == at::kStrided, "[tensorion.fold] expected a dense matrix, got ",
                    matrix.layout());
  std::vector<int64_t> permuted_shape(permutation_.size());
  std::vector<int64_t> inverse(permutation_.size());
  for (size_t i = 0; i < permutation_.size(); ++i) {
    permuted_shape[i] = shape_[permutation_[i]];
    inverse[permutation_[i]] = static_cast<int64_t>(i);
  }
  return matrix.reshape(permuted_shape).permute(inverse);
}

std::vector<Modes> unfoldings(at::IntArrayRef shape) {
  std::vector<Modes> all;
  for_each_unfolding(shape, [&](Modes modes) { all.push_back(std::move(modes)); });
  return all;
}

std::vector<Modes> unfoldings_of(at::IntArrayRef shape, const Family& family, const char* name) {
  if (family.empty()) return unfoldings(shape);
  std::vector<Modes> found;
  for (const auto& modes : family) {
    auto canonical = Unfolding(shape, modes).canonical();
    TORCH_CHECK_VALUE(
        !canonical.empty(), "[tensorion.", name,
        "] the rows and the columns of every unfolding in family must have a mode larger than 1, got ",
        at::IntArrayRef(modes), " for shape ", shape);
    if (std::find(found.begin(), found.end(), canonical) == found.end())
      found.push_back(std::move(canonical));
  }
  return found;
}

Modes balanced_unfolding(at::IntArrayRef shape) {
  const Modes effective = effective_modes(shape);
  const size_t d = effective.size();
  TORCH_CHECK_VALUE(d >= 2,
                    "[tensorion.balanced_unfolding] at least two modes of size other than 1 are "
                    "needed, got shape ",
                    shape);
  const auto size = [&](size_t i) { return shape[effective[i]]; };
  int64_t elements = 1;
  for (size_t i = 0; i < d; ++i) elements *= size(i);
  if (elements == 0) return {effective[0]};  // min(rows, cols) is 0 for every unfolding

  // reachable[i][k] has the products of every k of the sizes i, i + 1, ..., d - 1. These sets are small,
  // because their elements divide a number below 2^63, which has few divisors.
  std::vector<std::vector<std::set<int64_t>>> reachable(d + 1, std::vector<std::set<int64_t>>(d + 1));
  reachable[d][0] = {1};
  for (size_t i = d; i-- > 0;) {
    reachable[i] = reachable[i + 1];
    for (size_t k = 0; k < d - i; ++k) {
      for (const int64_t product : reachable[i + 1][k]) reachable[i][k + 1].insert(product * size(i));
    }
  }
  // Find the largest min(rows, cols), and the smallest number of modes whose unfolding attains it.
  int64_t best = 0;
  size_t count = 0;
  for (size_t k = 1; 2 * k <= d; ++k) {
    for (const int64_t rows : reachable[0][k]) {
      const int64_t side = std::min(rows, elements / rows);
      if (side > best) best = side, count = k;
    }
  }
  // Returns the lexicographically first set of `count` modes with this product, or an empty set.
  const auto first = [&](int64_t product) {
    Modes modes;
    if (!reachable[0][count].contains(product)) return modes;
    for (size_t i = 0; modes.size() < count; ++i) {
      const size_t rest = count - modes.size() - 1;
      if (product % size(i) != 0 || !reachable[i + 1][rest].contains(product / size(i))) continue;
      product /= size(i);
      modes.push_back(effective[i]);
    }
    return modes;
  };
  const auto rows = first(best), cols = first(elements / best);
  if (rows.empty() || cols.empty()) return rows.empty() ? cols : rows;
  return std::min(rows, cols);
}

at::Tensor unfold(const at::Tensor& x, at::IntArrayRef modes) {
  return Unfolding(x.sizes(), modes).unfold(x);
}

at::Tensor fold(const at::Tensor& matrix, at::IntArrayRef modes, at::IntArrayRef shape) {
  return Unfolding(shape, modes).fold(matrix);
}

}  // namespace tensorion
