// Tests with several threads, possibly more than the machine has cores. Results must match those of one
// thread up to rounding, and must be bitwise reproducible.
#include "tensorion/lmo.h"
#include "tensorion/polar.h"
#include "tensorion/step.h"
#include "tests/support.h"

namespace tensorion {
namespace {

using testing::expect_close;
using testing::gaussian;
using testing::polar_rounding;
using testing::power_law;
using testing::ThreadGuard;
using testing::with_spectrum;

using Tensors = std::vector<at::Tensor>;

class Threads : public ::testing::TestWithParam<int> {
 protected:
  template <typename Function>
  static Tensors with_threads(int threads, const Function& function) {
    const ThreadGuard guard(threads);
    return function();
  }
  template <typename Function>
  static void expect_matches_one_thread(const Function& function, double tolerance, const std::string& what) {
    const auto actual = with_threads(GetParam(), function), expected = with_threads(1, function);
    ASSERT_EQ(actual.size(), expected.size()) << what;
    for (size_t i = 0; i < actual.size(); ++i) {
      expect_close(actual[i], expected[i], tolerance, c10::str(what, ", tensor ", i));
    }
  }
  template <typename Function>
  static void expect_reproducible(const Function& function, const std::string& what) {
    const auto first = with_threads(GetParam(), function), second = with_threads(GetParam(), function);
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_TRUE(at::equal(first[i], second[i])) << what << ", tensor " << i;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Library, Threads, ::testing::Values(2, 4, 8));

// One size is below and one above the limit from which on two factorizations run in parallel.
TEST_P(Threads, Polar) {
  for (const auto* method : {"halley", "newton_schulz", "svd"}) {
    for (const int64_t side : {60, 420}) {
      const auto a = with_spectrum(power_law(side, 0.5), side, side + 100, 1);
      const auto solve = [&] { return Tensors{polar(a, {.method = method})}; };
      expect_matches_one_thread(solve, polar_rounding(a, method), c10::str(method, " ", side));
      expect_reproducible(solve, c10::str(method, " ", side));
    }
    const auto batch = gaussian({7, 30, 50}, 2);
    expect_matches_one_thread([&] { return Tensors{polar(batch, {.method = method})}; },
                              polar_rounding(batch, method), c10::str(method, " of a batch"));
  }
}

TEST_P(Threads, LmoOnline) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{40, 30, 3, 3}, {12, 10, 8, 6}, {90, 80, 3}}) {
    const auto x = gaussian(shape, 3);
    std::vector<Modes> modes;
    const auto solve = [&] {
      const auto result = lmo(x);
      modes.push_back(result.modes);
      return Tensors{result.x, at::full({}, result.value, at::kDouble)};
    };
    expect_matches_one_thread(solve, polar_rounding(unfold(x, lmo(x).modes)),
                              c10::str(at::IntArrayRef(shape)));
    expect_reproducible(solve, c10::str(at::IntArrayRef(shape)));
    for (const auto& chosen : modes) EXPECT_EQ(chosen, modes[0]) << at::IntArrayRef(shape);
  }
}

// The sizes differ so much that some tensors are updated in parallel and some by all threads together.
TEST_P(Threads, Step) {
  const std::vector<std::vector<int64_t>> shapes{{4, 3, 3, 3},    {16, 8, 3, 3}, {64, 40, 3, 3}, {9, 5, 3},
                                                 {128, 96, 3, 3}, {32, 16, 5},   {24, 24, 1, 1}, {50, 70, 2}};
  for (const auto* strategy : {"balanced", "online"}) {
    StepOptions options;
    options.unfolding = strategy;
    double tolerance = 0;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const auto gradient = gaussian(shapes[i], 50 + i);
      const auto modes = lmo(gradient, strategy).modes;
      const Unfolding unfolding(shapes[i], modes);
      tolerance = std::max(tolerance, options.lr * adjusted_scale(unfolding, options.adjust_lr_fn) *
                                          polar_rounding(unfolding.unfold(gradient)));
    }
    const auto run = [&] {
      Tensors w, g, m;
      for (size_t i = 0; i < shapes.size(); ++i) {
        w.push_back(gaussian(shapes[i], i));
        g.push_back(gaussian(shapes[i], 50 + i));
        m.push_back(at::zeros(shapes[i]));
      }
      step(w, g, m, options);
      w.insert(w.end(), m.begin(), m.end());
      return w;
    };
    expect_matches_one_thread(run, tolerance + testing::rounding(at::kFloat, 3), strategy);
    // Regression: if the number of threads had been increased, the rounding of a result depended on the
    // thread.
    expect_reproducible(run, strategy);
  }
}

// The caller runs the library on several threads of its own, as a server does.
TEST_P(Threads, LmoInsideParallelRegion) {
  const auto x = gaussian({30, 20, 3, 3}, 4);
  const auto expected = lmo(x);
  const ThreadGuard guard(GetParam());
  const int64_t calls = 2 * int64_t{GetParam()};
  std::vector<LmoResult> results(calls);
  at::parallel_for(0, calls, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) results[i] = lmo(x);
  });
  for (const auto& result : results) {
    EXPECT_EQ(result.modes, expected.modes);
    expect_close(result.x, expected.x, polar_rounding(unfold(x, expected.modes)));
  }
}

}  // namespace
}  // namespace tensorion
