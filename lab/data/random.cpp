#include "lab/data/random.h"

#include <numeric>
#include <utility>

namespace tensorion::lab {
namespace {

constexpr uint64_t kIncrement = 0x9e3779b97f4a7c15;

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

Random::Random(uint64_t seed, Purpose purpose, int64_t epoch, int64_t index) : state_(seed) {
  for (const uint64_t part :
       {static_cast<uint64_t>(purpose), static_cast<uint64_t>(epoch), static_cast<uint64_t>(index)}) {
    state_ = mix(mix(state_ + kIncrement) + part);
  }
}

uint64_t Random::bits() { return mix(state_ += kIncrement); }

double Random::uniform(double low, double high) {
  return low + (high - low) * (static_cast<double>(bits() >> 11) * 0x1p-53);
}

int64_t Random::below(int64_t count) {
  // The high half of a 128-bit product. The bias of count / 2^64 is negligible.
  __extension__ using Wide = unsigned __int128;
  return static_cast<int64_t>((static_cast<Wide>(bits()) * static_cast<uint64_t>(count)) >> 64);
}

std::vector<int64_t> random_permutation(int64_t count, Random random) {
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = count - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  return order;
}

}  // namespace tensorion::lab
