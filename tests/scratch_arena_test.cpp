#include "tensorion/core/scratch_arena.h"

#include <thread>

#include "tests/support.h"

namespace tensorion {
namespace {

constexpr int64_t kLarge = 100000;

at::Tensor take(int64_t elements, double value) { return scratch({elements}, at::kFloat).fill_(value); }

// Returns true if all elements have this value.
bool holds(const at::Tensor& x, double value) { return (x == value).all().item<bool>(); }

TEST(Scratch, AllocationsDoNotOverlap) {
  for (int round = 0; round < 3; ++round) {
    std::vector<at::Tensor> pieces;
    for (int i = 0; i < 20; ++i) pieces.push_back(take(kLarge + 1000 * i, i));
    // Free blocks of several sizes, and allocate other sizes in the gaps.
    for (int i = 0; i < 20; i += 3) pieces[i] = at::Tensor();
    for (int i = 0; i < 20; i += 3) pieces[i] = take(kLarge / 2 + 7000 * i, i);
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(holds(pieces[i], i)) << i;
  }
}

TEST(Scratch, MemoryIsReused) {
  release_scratch();
  const auto use = [] {
    const auto a = take(kLarge, 1), b = take(2 * kLarge, 2);
    return std::pair(a.data_ptr(), b.data_ptr());
  };
  use();  // determines the high-water mark
  const auto first = use();
  EXPECT_EQ(use(), first);
  EXPECT_EQ(use(), first);
}

TEST(Scratch, TensorsAreAlignedAndHaveTheirShape) {
  const auto a = scratch({333, 77}, at::kDouble), b = scratch({2, 5}, at::kFloat);
  EXPECT_EQ(a.sizes(), at::IntArrayRef({333, 77}));
  EXPECT_TRUE(a.is_contiguous());
  EXPECT_EQ(a.scalar_type(), at::kDouble);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data_ptr()) % 64, 0u);
  EXPECT_EQ(b.sizes(), at::IntArrayRef({2, 5}));
}

TEST(Scratch, MemoryInUseSurvivesRelease) {
  const auto kept = take(kLarge, 3);
  release_scratch();
  const auto other = take(kLarge, 4);
  EXPECT_TRUE(holds(kept, 3));
  EXPECT_TRUE(holds(other, 4));
}

// Regression: a failed allocation was counted as memory in use, so the arena never grew or released memory
// again.
TEST(Scratch, WorksAfterFailedAllocation) {
  release_scratch();
  constexpr int64_t kTooMuch = int64_t{1} << 45;
  EXPECT_THROW(scratch({kTooMuch}, at::kFloat), c10::Error);
  EXPECT_THROW(scratch({kTooMuch}, at::kFloat), c10::Error);
  const auto use = [] {
    const auto a = take(kLarge, 1), b = take(2 * kLarge, 2);
    return std::pair(a.data_ptr(), b.data_ptr());
  };
  use();
  EXPECT_EQ(use(), use());
}

TEST(Scratch, IsThreadSafe) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t, &wrong] {
      for (int i = 0; i < 50; ++i) {
        const auto piece = take(5000 + 997 * ((t + i) % 7), t);
        std::this_thread::yield();
        wrong += !holds(piece, t);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tensorion
