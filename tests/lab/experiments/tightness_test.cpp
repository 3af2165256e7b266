#include "lab/experiments/tightness.h"

#include <nlohmann/json.hpp>

#include "tests/support.h"

namespace tensorion::lab {
namespace {

using tensorion::testing::gaussian;

// Compares with the singular values of every unfolding, computed directly.
TEST(Tightness, MatchesItsDefinition) {
  const auto m = gaussian({8, 6, 3, 3}, 5, at::kDouble);
  const auto value = measure_tightness(m, 8);
  double largest = 0;
  Modes winner;
  const auto all = unfoldings(m.sizes());
  ASSERT_EQ(value.nuclear_norms.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const double norm = at::linalg_svdvals(unfold(m, all[i])).sum().item<double>();
    EXPECT_NEAR(value.nuclear_norms[i], norm, 1e-12 * norm);
    if (norm > largest) {
      largest = norm;
      winner = all[i];
    }
  }
  EXPECT_EQ(value.online, winner);
  EXPECT_EQ(value.balanced, (Modes{0, 2}));
  const double balanced = at::linalg_svdvals(unfold(m, {0, 2})).sum().item<double>();
  EXPECT_NEAR(value.gap, 1 - balanced / largest, 1e-12);
  // The solution of the oracle has relaxed norm 1.
  EXPECT_NEAR(value.relaxed_lower, 1, 1e-12);
  EXPECT_NEAR(value.relaxed_upper, 1, 1e-12);
  EXPECT_LE(value.spectral, 1 + 1e-12);
  EXPECT_GT(value.spectral, 0.3);
}

TEST(Tightness, FindsAnUnfoldingBetterThanTheBalancedOne) {
  // The balanced unfolding of this momentum has rank one.
  const auto low = fold(at::matmul(gaussian({12, 1}, 8, at::kDouble), gaussian({1, 12}, 9, at::kDouble)),
                        {0, 2}, {4, 4, 3, 3});
  const auto value = measure_tightness(low, 4);
  EXPECT_EQ(value.balanced, (Modes{0, 2}));
  EXPECT_NE(value.online, value.balanced);
  EXPECT_GT(value.gap, 0.1);
  const auto layers = layer_table({value, value});
  ASSERT_EQ(layers.rows.size(), 1U);
  EXPECT_EQ(layers.rows[0][2], "{1,3}");
  EXPECT_EQ(layers.rows[0][5], "100 %");
  EXPECT_EQ(tightness_table({value}).rows[4][1], "1.0000");
}

TEST(Tightness, TableComparesWidthAndHeight) {
  const auto kernel = gaussian({5, 4, 3, 3}, 3, at::kDouble);
  const auto norm = [&](const Modes& modes) {
    return at::linalg_svdvals(unfold(kernel, modes)).sum().item<double>();
  };
  const double expected = norm({0, 3}) / norm({0, 2}) - 1;
  const auto row = tightness_table({measure_tightness(kernel, 1)}).rows.back();
  EXPECT_EQ(row[0], "||M_{1,4}||_* / ||M_{1,3}||_* - 1");
  EXPECT_NEAR(std::stod(row[1]), expected, 5.1e-5);
  // Transposing height and width exchanges the two norms.
  const auto transposed = tightness_table({measure_tightness(kernel.transpose(2, 3).contiguous(), 1)});
  EXPECT_NEAR(std::stod(transposed.rows.back()[1]), 1 / (1 + expected) - 1, 5.1e-5);
}

TEST(Tightness, RoundTripsThroughJson) {
  auto value = measure_tightness(gaussian({3, 4, 2}, 1), 2);
  value.step = 12;
  value.layer = "layer1.0.conv1.weight";
  const auto json = to_json(value);
  EXPECT_EQ(to_json(tightness_from_json(nlohmann::json::parse(json.dump()))).dump(), json.dump());
}

}  // namespace
}  // namespace tensorion::lab
