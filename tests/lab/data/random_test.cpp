#include "lab/data/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace tensorion::lab {
namespace {

using Purpose = Random::Purpose;

TEST(Random, MatchesSplitMix64) {
  // The first numbers of the reference implementation with the state 1234567.
  Random random(1234567);
  for (const uint64_t expected : {6457827717110365317U, 3203168211198807973U, 9817491932198370423U,
                                  4593380528125082431U, 16408922859458223821U}) {
    EXPECT_EQ(random.bits(), expected);
  }
}

TEST(Random, StreamsAreReproducibleAndDistinct) {
  std::set<uint64_t> first;
  int64_t made = 0;
  for (const uint64_t seed : {0, 1, 2}) {
    for (const auto purpose : {Purpose::kShuffle, Purpose::kAugment, Purpose::kSubset}) {
      for (int64_t epoch = 0; epoch < 5; ++epoch) {
        for (int64_t index = 0; index < 100; ++index, ++made) {
          const uint64_t bits = Random(seed, purpose, epoch, index).bits();
          EXPECT_EQ(bits, Random(seed, purpose, epoch, index).bits());
          first.insert(bits);
        }
      }
    }
  }
  EXPECT_EQ(static_cast<int64_t>(first.size()), made);
}

// The first numbers of the streams of consecutive samples must look random.
TEST(Random, IsUniformAcrossStreams) {
  constexpr int64_t kCount = 90000, kBins = 9;
  std::vector<int64_t> bins(kBins);
  int64_t heads = 0;
  double sum = 0;
  for (int64_t index = 0; index < kCount; ++index) {
    Random random(7, Purpose::kAugment, 3, index);
    heads += random.coin();
    const int64_t bin = random.below(kBins);
    ASSERT_TRUE(bin >= 0 && bin < kBins);
    ++bins[bin];
    const double value = random.uniform(-1, 3);
    ASSERT_TRUE(value >= -1 && value < 3);
    sum += value;
  }
  // The tolerance is five standard deviations.
  EXPECT_NEAR(static_cast<double>(heads), kCount / 2.0, 5 * std::sqrt(kCount / 4.0));
  for (const int64_t count : bins) EXPECT_NEAR(static_cast<double>(count), 10000, 5 * std::sqrt(10000));
  EXPECT_NEAR(sum / kCount, 1, 5 * 4 / std::sqrt(12.0 * kCount));
}

TEST(Random, PermutationsAreUniform) {
  for (const int64_t count : {0, 1, 2, 1000}) {
    auto order = random_permutation(count, Random(1, Purpose::kShuffle, 2));
    EXPECT_EQ(order, random_permutation(count, Random(1, Purpose::kShuffle, 2)));
    std::sort(order.begin(), order.end());
    std::vector<int64_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(order, all);
  }
  std::vector<int64_t> first(4), last(4);
  for (int64_t epoch = 0; epoch < 4000; ++epoch) {
    const auto order = random_permutation(4, Random(1, Purpose::kShuffle, epoch));
    ++first[order.front()];
    ++last[order.back()];
  }
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(static_cast<double>(first[i]), 1000, 5 * std::sqrt(750));
    EXPECT_NEAR(static_cast<double>(last[i]), 1000, 5 * std::sqrt(750));
  }
}

}  // namespace
}  // namespace tensorion::lab
