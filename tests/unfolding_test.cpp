#include "tensorion/unfolding.h"

#include <algorithm>
#include <random>
#include <set>

#include "tests/support.h"

namespace tensorion {
namespace {

using testing::expect_close;
using testing::expect_error;
using testing::gaussian;

// Returns a random shape with `order` modes of sizes 1 to 5.
std::vector<int64_t> random_shape(std::mt19937_64& random, int64_t order) {
  std::vector<int64_t> shape(order);
  for (auto& size : shape) size = std::uniform_int_distribution<int64_t>(1, 5)(random);
  return shape;
}

// Returns the same values in one of several memory layouts.
at::Tensor in_layout(const at::Tensor& x, int layout) {
  switch (layout) {
    case 1: return x.dim() == 4 ? x.contiguous(at::MemoryFormat::ChannelsLast) : x;
    case 2: {  // stored transposed
      std::vector<int64_t> reversed(x.dim());
      for (int64_t i = 0; i < x.dim(); ++i) reversed[i] = x.dim() - 1 - i;
      return x.permute(reversed).contiguous().permute(reversed);
    }
    case 3: {  // every second element of a larger tensor
      auto sizes = x.sizes().vec();
      sizes.back() *= 2;
      auto larger = at::zeros(sizes, x.options());
      auto view = larger.slice(-1, 0, sizes.back(), 2);
      view.copy_(x);
      return view;
    }
    default: return x;
  }
}

// Unfolds element by element from the definition, without reshape.
at::Tensor unfold_by_definition(const at::Tensor& x, const Modes& modes) {
  const auto source = x.contiguous();
  const auto* values = source.data_ptr<float>();
  int64_t rows = 1;
  for (const auto mode : modes) rows *= x.size(mode);
  const int64_t cols = rows == 0 ? 0 : x.numel() / rows;
  auto out = at::empty({rows, cols}, x.options());
  auto* unfolded = out.data_ptr<float>();
  for (int64_t flat = 0; flat < x.numel(); ++flat) {
    int64_t rest = flat, row = 0, col = 0, row_stride = 1, col_stride = 1;
    for (int64_t mode = x.dim() - 1; mode >= 0; --mode) {
      const int64_t index = rest % x.size(mode);
      rest /= x.size(mode);
      if (std::find(modes.begin(), modes.end(), mode) != modes.end()) {
        row += index * row_stride;
        row_stride *= x.size(mode);
      } else {
        col += index * col_stride;
        col_stride *= x.size(mode);
      }
    }
    unfolded[row * cols + col] = values[flat];
  }
  return out;
}

TEST(Unfolding, EnumerationIsInDocumentedOrder) {
  const std::vector<Modes> expected{{0}, {1}, {2}, {3}, {0, 1}, {0, 2}, {0, 3}};
  EXPECT_EQ(unfoldings({8, 4, 3, 3}), expected);
  EXPECT_EQ(unfoldings({2, 3}), (std::vector<Modes>{{0}}));
  EXPECT_EQ(unfoldings({1, 197, 384}), (std::vector<Modes>{{1}}));
  EXPECT_TRUE(unfoldings({1, 1, 384}).empty());
  EXPECT_TRUE(unfoldings({}).empty());
}

TEST(Unfolding, ListsEachPairOfComplementsOnce) {
  for (int64_t d = 1; d <= 9; ++d) {
    const std::vector<int64_t> shape(d, 2);
    const auto all = unfoldings(shape);
    EXPECT_EQ(static_cast<int64_t>(all.size()), (int64_t{1} << (d - 1)) - 1);
    std::set<Modes> seen;
    for (const auto& modes : all) {
      Modes rest;
      for (int64_t mode = 0; mode < d; ++mode) {
        if (!std::binary_search(modes.begin(), modes.end(), mode)) rest.push_back(mode);
      }
      EXPECT_TRUE(seen.insert(modes).second);
      EXPECT_TRUE(seen.insert(rest).second);
      EXPECT_TRUE(modes.size() < rest.size() || (modes.size() == rest.size() && modes[0] == 0));
    }
  }
}

TEST(Unfolding, BalancedMatchesBruteForce) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const auto shape = random_shape(random, 2 + trial % 6);
    if (effective_order(shape) < 2) continue;
    Modes best;
    int64_t best_side = 0;
    for (const auto& modes : unfoldings(shape)) {
      int64_t rows = 1, all = 1;
      for (size_t i = 0; i < shape.size(); ++i) {
        all *= shape[i];
        if (std::binary_search(modes.begin(), modes.end(), static_cast<int64_t>(i))) rows *= shape[i];
      }
      if (std::min(rows, all / rows) > best_side) {
        best_side = std::min(rows, all / rows);
        best = modes;
      }
    }
    EXPECT_EQ(balanced_unfolding(shape), best) << at::IntArrayRef(shape);
  }
  EXPECT_EQ(balanced_unfolding({512, 512, 3, 3}), (Modes{0, 2}));
  EXPECT_EQ(balanced_unfolding({768, 3, 16, 16}), (Modes{0}));
}

TEST(Unfolding, FoldInvertsUnfoldExactlyInEveryLayout) {
  std::mt19937_64 random(2);
  int checked = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const auto shape = random_shape(random, 1 + trial % 7);
    const auto x = in_layout(gaussian(shape, trial), trial % 4);
    auto sets = unfoldings(shape);
    if (shape.size() == 1) sets.push_back({0});
    for (const auto& modes : sets) {
      const Unfolding unfolding(shape, modes);
      const auto matrix = unfolding.unfold(x);
      ASSERT_TRUE(at::equal(matrix, unfold_by_definition(x, modes))) << at::IntArrayRef(shape);
      ASSERT_TRUE(at::equal(unfolding.fold(matrix), x)) << at::IntArrayRef(shape);
      ASSERT_EQ(unfolding.rows(), matrix.size(0));
      ASSERT_EQ(unfolding.cols(), matrix.size(1));
      ++checked;
    }
  }
  EXPECT_GT(checked, 1000);
}

TEST(Unfolding, IsAViewIfStridesAllow) {
  const auto kernel = gaussian({8, 4, 3, 3}, 3);
  EXPECT_TRUE(unfold(kernel, {0}).is_alias_of(kernel));
  EXPECT_TRUE(unfold(kernel, {0, 1}).is_alias_of(kernel));
  EXPECT_TRUE(unfold(kernel, {2, 3}).is_alias_of(kernel));
  EXPECT_FALSE(unfold(kernel, {0, 2}).is_alias_of(kernel));
  const auto channels_last = kernel.contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(unfold(channels_last, {1}).is_alias_of(channels_last));
  const auto matrix = gaussian({32, 9}, 4);
  EXPECT_TRUE(fold(matrix, {0, 1}, {8, 4, 3, 3}).is_alias_of(matrix));
}

TEST(Unfolding, RowModesAreSorted) {
  const auto x = gaussian({2, 3, 4}, 5);
  EXPECT_TRUE(at::equal(unfold(x, {2, 0}), unfold(x, {0, 2})));
  EXPECT_TRUE(at::equal(unfold(x, {0, 2}), unfold(x, {1}).mT()));
}

TEST(Unfolding, ZeroSizedModes) {
  const auto x = at::empty({3, 0, 2});
  for (const auto& modes : unfoldings(x.sizes())) {
    const auto matrix = unfold(x, modes);
    EXPECT_EQ(matrix.numel(), 0);
    EXPECT_EQ(fold(matrix, modes, x.sizes()).sizes(), x.sizes());
  }
  EXPECT_EQ(effective_order(x.sizes()), 3);
}

TEST(Unfolding, ThrowsForBadInput) {
  const auto x = gaussian({2, 3, 4, 5}, 6);
  expect_error<c10::ValueError>([&] { unfold(x, {5}); }, "[tensorion.unfold] mode must be in [0, 4), got 5");
  expect_error<c10::ValueError>([&] { unfold(x, {-1}); }, "got -1");
  expect_error<c10::ValueError>([&] { unfold(x, {1, 1}); }, "modes must be distinct, got [1, 1]");
  expect_error<c10::ValueError>([&] { unfold(x, {}); }, "at least one mode is needed for the rows");
  expect_error<c10::ValueError>([&] { unfold(x, {0, 1, 2, 3}); }, "left for the columns, got all 4");
  expect_error<c10::ValueError>([&] { unfold(at::scalar_tensor(1.0), {0}); }, "mode must be in [0, 0)");
  expect_error<c10::ValueError>([&] { fold(at::zeros({6, 19}), {0, 1}, x.sizes()); },
                                "unfold to a matrix of shape [6, 20], got [6, 19]");
  expect_error<c10::ValueError>([&] { fold(at::zeros({6}), {0, 1}, x.sizes()); }, "got [6]");
  expect_error<c10::ValueError>([&] { unfoldings(std::vector<int64_t>(25, 2)); },
                                "at most 24 modes of size other than 1 are supported, got 25");
  expect_error<c10::ValueError>([&] { balanced_unfolding({1, 7}); }, "got shape [1, 7]");
  // Regression: the number of rows overflowed to 0.
  expect_error<c10::ValueError>([&] { Unfolding({int64_t{1} << 32, int64_t{1} << 32, 2}, {0, 1}); },
                                "fewer than 2^63 elements, got shape [4294967296, 4294967296, 2]");
  EXPECT_EQ(unfoldings(std::vector<int64_t>{2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                            1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})
                .size(),
            1U);
}

TEST(Unfolding, IsViewMatchesUnfold) {
  const auto x = gaussian({6, 5, 3, 3}, 7);
  const auto last = x.contiguous(at::MemoryFormat::ChannelsLast);
  for (const auto& tensor : {x, last, x.transpose(0, 1)}) {
    for (const auto& modes : unfoldings(x.sizes())) {
      SCOPED_TRACE(c10::str(tensor.strides(), at::IntArrayRef(modes)));
      const Unfolding unfolding(tensor.sizes(), modes);
      EXPECT_EQ(unfolding.is_view(tensor), unfolding.unfold(tensor).is_alias_of(tensor));
    }
  }
}

// Returns the first unfolding with the largest min(rows, cols), by exhaustive search.
Modes balanced_by_search(at::IntArrayRef shape) {
  Modes best;
  int64_t best_side = -1;
  for (const auto& modes : unfoldings(shape)) {
    const Unfolding unfolding(shape, modes);
    const int64_t side = std::min(unfolding.rows(), unfolding.cols());
    if (side > best_side) best_side = side, best = modes;
  }
  return best;
}

// Regression: balanced_unfolding enumerated all sets of modes, three times for every tensor in every step.
TEST(BalancedUnfolding, MatchesExhaustiveSearch) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<int64_t> shape(2 + random() % 6);
    for (auto& size : shape) size = random() % (trial % 2 ? 6 : 13);
    if (trial % 10) std::replace(shape.begin(), shape.end(), int64_t{0}, int64_t{2});
    if (effective_order(shape) < 2) continue;
    EXPECT_EQ(balanced_unfolding(shape), balanced_by_search(shape)) << at::IntArrayRef(shape);
  }
  for (const auto& shape : std::vector<std::vector<int64_t>>{std::vector<int64_t>(16, 2),
                                                             std::vector<int64_t>(11, 3),
                                                             {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31}}) {
    EXPECT_EQ(balanced_unfolding(shape), balanced_by_search(shape)) << at::IntArrayRef(shape);
  }
  EXPECT_EQ(balanced_unfolding(std::vector<int64_t>(24, 2)), (Modes{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
}

}  // namespace
}  // namespace tensorion
