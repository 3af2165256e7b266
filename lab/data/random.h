// Counter-based random numbers for shuffling, augmentation and subsets.
//
// A stream is a pure function of (seed, purpose, epoch, index). Sample 17 of epoch 3 is therefore augmented
// in the same way in any thread, in any order, and in a resumed run. The generator is SplitMix64 (Steele, Lea
// and Flood 2014): the k-th number of a stream is mix(key + k * 0x9e3779b97f4a7c15).
#pragma once

#include <cstdint>
#include <vector>

namespace tensorion::lab {

class Random {
 public:
  // Streams with different purposes are independent.
  enum class Purpose : uint64_t { kShuffle = 1, kAugment = 2, kSubset = 3 };

  // Plain SplitMix64 with this initial state.
  explicit Random(uint64_t state) : state_(state) {}
  Random(uint64_t seed, Purpose purpose, int64_t epoch = 0, int64_t index = 0);

  // Returns 64 random bits.
  uint64_t bits();
  // Uniform in [low, high).
  double uniform(double low, double high);
  // Uniform in {0, ..., count - 1}, count >= 1.
  int64_t below(int64_t count);
  // True with probability 1/2.
  bool coin() { return bits() >> 63 != 0; }

 private:
  uint64_t state_;
};

// Returns 0, ..., count - 1 in random order.
std::vector<int64_t> random_permutation(int64_t count, Random random);

}  // namespace tensorion::lab
