#include "tensorion/coefficients.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

#include "tensorion/polar/polar_express_tables.h"

namespace tensorion {
namespace {

// Keller Jordan, Muon (2024).
const Coefficients kMuon{{3.4445, -4.7750, 2.0315}};

// Amsel et al., The Polar Express, arXiv 2505.16932.
const Coefficients kPolarExpress{
    {8.28721201814563, -23.595886519098837, 17.300387312530933},
    {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
    {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
    {3.3184196573706015, -2.488488024314874, 0.51004894012372},
    {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
    {1.891301407787398, -1.2679958271945868, 0.37680408948524835},
    {1.8750014808534479, -1.2500016453999487, 0.3750001645474248},
    {1.875, -1.25, 0.375},
};

// CANS: Chebyshev-optimized Newton-Schulz, arXiv 2506.10935.
const Coefficients kCans{
    {8.4703, -25.1081, 18.6293}, {4.1828, -3.1087, 0.5806}, {3.9619, -2.9541, 0.5630},
    {3.2866, -2.4647, 0.5074},   {2.2737, -1.6447, 0.4162},
};

// Applies the safety factor s of Polar Express: every polynomial p(x) except the last becomes p(x / s). This
// is necessary because rounding may move a singular value slightly above 1, where the polynomials grow fast.
// The last polynomial has a fixed point at 1 and needs no safety factor.
Coefficients with_safety(Coefficients rows, double s) {
  for (size_t i = 0; i + 1 < rows.size(); ++i) {
    rows[i][0] /= s;
    rows[i][1] /= std::pow(s, 3);
    rows[i][2] /= std::pow(s, 5);
  }
  return rows;
}

void check_steps(int64_t steps) {
  TORCH_CHECK_VALUE(steps >= 1, "[tensorion.polar] ns_steps must be at least 1, got ", steps);
  TORCH_CHECK_VALUE(steps <= kMaxSteps, "[tensorion.polar] ns_steps must be at most ", kMaxSteps, ", got ",
                    steps);
}

}  // namespace

Coefficients named_coefficients(const std::string& name) {
  if (name == "muon") return kMuon;
  if (name == "polar_express") return with_safety(kPolarExpress, 1.01);
  if (name == "cans") return kCans;
  TORCH_CHECK_VALUE(
      false,
      "[tensorion.polar] ns_coefficients must be 'muon', 'polar_express', 'cans' or rows (a, b, c), got '",
      name, "'");
}

std::vector<double> flatten(const Coefficients& rows) {
  std::vector<double> values;
  for (const auto& row : rows) values.insert(values.end(), row.begin(), row.end());
  return values;
}

Coefficients unflatten(const std::vector<double>& values) {
  TORCH_CHECK_VALUE(values.size() % 3 == 0, "[tensorion.polar] ns_coefficients must be rows of 3, got ",
                    values.size(), " numbers");
  Coefficients rows;
  for (size_t i = 0; i < values.size(); i += 3) rows.push_back({values[i], values[i + 1], values[i + 2]});
  return rows;
}

Coefficients coefficient_schedule(const Coefficients& rows, int64_t steps) {
  check_steps(steps);
  TORCH_CHECK_VALUE(!rows.empty(),
                    "[tensorion.polar] ns_coefficients must hold at least one row (a, b, c), got none");
  for (const auto& row : rows) {
    for (const double value : row) {
      TORCH_CHECK_VALUE(std::isfinite(value), "[tensorion.polar] ns_coefficients must be finite, got ",
                        value);
    }
  }
  Coefficients schedule;
  for (int64_t i = 0; i < steps; ++i) {
    schedule.push_back(rows[std::min<size_t>(static_cast<size_t>(i), rows.size() - 1)]);
  }
  return schedule;
}

Coefficients polar_express_schedule(int64_t steps) {
  namespace tables = polar_express_tables;
  check_steps(steps);
  const auto most = tables::kFewestSteps + static_cast<int64_t>(tables::kBySteps.size()) - 1;
  const auto& rows = tables::kBySteps[std::clamp(steps, tables::kFewestSteps, most) - tables::kFewestSteps];
  return coefficient_schedule(rows, steps);
}

double largest_value(const Coefficients& schedule) {
  constexpr int kPoints = 20000;
  double largest = 0;
  for (int i = 0; i <= kPoints; ++i) {
    double x = static_cast<double>(i) / kPoints;
    for (const auto& [a, b, c] : schedule) x *= a + x * x * (b + c * x * x);
    largest = std::max(largest, std::abs(x));
  }
  return largest;
}

}  // namespace tensorion
