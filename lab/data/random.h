// Random numbers as a pure function of what they are for.
//
// A stream is named by (seed, purpose, epoch, index) and holds no other state:
// sample 17 of epoch 3 is augmented the same way by any thread, in any order,
// in a run that was resumed. The generator is SplitMix64 (Steele, Lea and
// Flood 2014): the k-th number of a stream is mix(key + k * 0x9e3779b97f4a7c15).
#pragma once

#include <cstdint>
#include <vector>

namespace tensorion::lab {

class Random {
 public:
  // Streams of different purposes are independent of each other.
  enum class Purpose : uint64_t { kShuffle = 1, kAugment = 2, kSubset = 3 };

  // The stream whose state is `state`: plain SplitMix64.
  explicit Random(uint64_t state) : state_(state) {}
  Random(uint64_t seed, Purpose purpose, int64_t epoch = 0, int64_t index = 0);

  // Uniform over all 64 bits.
  uint64_t bits();
  // Uniform in [low, high).
  double uniform(double low, double high);
  // Uniform in {0, ..., count - 1}, count >= 1.
  int64_t below(int64_t count);
  // True half of the time.
  bool coin() { return bits() >> 63 != 0; }

 private:
  uint64_t state_;
};

// 0, ..., count - 1 in random order.
std::vector<int64_t> random_permutation(int64_t count, Random random);

}  // namespace tensorion::lab
