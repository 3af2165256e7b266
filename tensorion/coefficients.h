// Coefficients of the Newton-Schulz iteration. A step with the row (a, b, c) computes
//   X <- a X + (b R + c R^2) X,  R = X X^T.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace tensorion {

// One row (a, b, c) per step.
using Coefficients = std::vector<std::array<double, 3>>;

// Returns a published table: "muon", "polar_express" or "cans". Throws if the name is unknown.
Coefficients named_coefficients(const std::string& name);

// Converts between rows and a flat list of numbers, which operators and archives use. `unflatten` throws if
// the number of values is not a multiple of three.
std::vector<double> flatten(const Coefficients& rows);
Coefficients unflatten(const std::vector<double>& values);

// The largest number of steps that is accepted; no input needs as many.
inline constexpr int64_t kMaxSteps = 1000;

// Returns one row for each step: the given rows in order. If `steps` exceeds the number of rows, the last row
// is repeated.
Coefficients coefficient_schedule(const Coefficients& rows, int64_t steps);

// Returns the Polar Express coefficients for this number of steps. The lower end of their range of singular
// values is chosen for the number of steps.
Coefficients polar_express_schedule(int64_t steps);

// Returns the largest magnitude that the composed polynomials take on [0, 1], evaluated on a fine grid. This
// is the spectral norm that a result may have.
double largest_value(const Coefficients& schedule);

}  // namespace tensorion
