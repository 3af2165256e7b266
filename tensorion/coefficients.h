// Newton-Schulz coefficients: one step is X <- a X + (b R + c R^2) X with R = X X^T.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace tensorion {

using Coefficients = std::vector<std::array<double, 3>>;

// A published set: "muon", "polar_express" or "cans".
Coefficients named_coefficients(const std::string& name);

// The rows one after the other, as operators take them and archives hold them, and back.
std::vector<double> flatten(const Coefficients& rows);
Coefficients unflatten(const std::vector<double>& values);

// Far more steps than any input needs.
inline constexpr int64_t kMaxSteps = 1000;

// `steps` rows: those of `rows` in order, and the last one again if there are more steps.
Coefficients coefficient_schedule(const Coefficients& rows, int64_t steps);

// Polar Express for the smallest singular values that so many steps can lift.
Coefficients polar_express_schedule(int64_t steps);

// The largest value that the scheduled polynomials reach on [0, 1]: a bound of the result's spectral norm.
double largest_value(const Coefficients& schedule);

}  // namespace tensorion
