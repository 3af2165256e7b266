#include "lab/data/raw_split.h"

#include <map>
#include <set>

#include "tests/lab/data/support.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;

using testing::expect_error;
using testing::noise;

std::map<int64_t, int64_t> count_classes(const std::vector<int64_t>& labels,
                                         const std::vector<int64_t>& indices) {
  std::map<int64_t, int64_t> counts;
  for (const int64_t i : indices) ++counts[labels[i]];
  return counts;
}

TEST(RawSplit, SubsetsAreBalancedUntilClassesAreExhausted) {
  std::vector<int64_t> labels;  // 40 samples of class 0, 30 of class 1, 3 of class 2
  for (int64_t i = 0; i < 73; ++i) labels.push_back(i % 2 == 0 && i < 60 ? 1 : i >= 70 ? 2 : 0);
  using Counts = std::map<int64_t, int64_t>;
  EXPECT_EQ(count_classes(labels, balanced_subset(labels, 6, 1)), (Counts{{0, 2}, {1, 2}, {2, 2}}));
  EXPECT_EQ(count_classes(labels, balanced_subset(labels, 9, 1)), (Counts{{0, 3}, {1, 3}, {2, 3}}));
  EXPECT_EQ(count_classes(labels, balanced_subset(labels, 23, 1)), (Counts{{0, 10}, {1, 10}, {2, 3}}));
  EXPECT_EQ(count_classes(labels, balanced_subset(labels, 68, 1)), (Counts{{0, 35}, {1, 30}, {2, 3}}));
  EXPECT_EQ(balanced_subset(labels, 73, 1).size(), 73U);
  EXPECT_EQ(balanced_subset(labels, 1000, 1).size(), 73U);
  for (const auto& [label, count] : count_classes(labels, balanced_subset(labels, 8, 1))) {
    EXPECT_TRUE(count == 2 || count == 3) << label;
  }
}

TEST(RawSplit, SubsetsAreSortedDistinctAndSeeded) {
  std::vector<int64_t> labels(1000);
  for (int64_t i = 0; i < 1000; ++i) labels[i] = i % 10;
  const auto chosen = balanced_subset(labels, 100, 5);
  EXPECT_TRUE(std::is_sorted(chosen.begin(), chosen.end()));
  EXPECT_EQ(std::set<int64_t>(chosen.begin(), chosen.end()).size(), 100U);
  EXPECT_EQ(chosen, balanced_subset(labels, 100, 5));
  EXPECT_NE(chosen, balanced_subset(labels, 100, 6));
  // The subset covers the whole range: the mean of 100 samples of 0 ... 999 has a standard deviation of 29.
  double sum = 0;
  for (const int64_t i : chosen) sum += static_cast<double>(i);
  EXPECT_NEAR(sum / 100, 499.5, 5 * 29);
  expect_error<c10::ValueError>(
      [&] { balanced_subset(labels, 0, 5); },
      "[tensorion.data] the limit on the number of samples must be at least 1, got 0");
}

TEST(RawSplit, SelectReturnsPixelsOrFilesWithLabels) {
  RawSplit decoded;
  decoded.pixels = noise({4, 1, 2, 2}, 1);
  decoded.labels = {5, 6, 7, 8};
  const RawSplit some = select(decoded, {3, 1});
  EXPECT_TRUE(at::equal(some.pixels, at::stack({decoded.pixels[3], decoded.pixels[1]})));
  EXPECT_EQ(some.labels, (std::vector<int64_t>{8, 6}));

  RawSplit listed;
  listed.files = {"a", "b", "c"};
  listed.labels = {1, 2, 3};
  const RawSplit few = select(listed, {0, 2});
  EXPECT_EQ(few.files, (std::vector<fs::path>{"a", "c"}));
  EXPECT_EQ(few.labels, (std::vector<int64_t>{1, 3}));
  EXPECT_FALSE(few.pixels.defined());
}

}  // namespace
}  // namespace tensorion::lab
