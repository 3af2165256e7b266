// Moments of a spectrum, and certificates: linear combinations of moments that bound a nuclear norm.
//
// For S = A A^T / lambda with eigenvalues s in [0, 1], the moments are the sums over the spectrum of
//   1, s, s^2  and, for each shift c,  c / (s + c), (c / (s + c))^2, log(1 + s / c).
// They are by-products of the factorization and inversion of S + c I. A certificate is a linear combination g
// of these functions with g(s) >= sqrt(s) on [0, 1] (upper bound) or g(s) <= sqrt(s) (lower bound). Its sum
// over the spectrum bounds ||A||_* / sqrt(lambda). scripts/make_rational_filter_tables.py computes the
// weights.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace tensorion {

// Bounds lower <= ||A||_* <= upper.
struct NuclearBounds {
  double lower = 0;
  double upper = 0;
};

// The moments of one shift c, or their weights in a certificate.
struct ShiftMoments {
  double inverse = 0;          // c / (s + c)
  double inverse_squared = 0;  // (c / (s + c))^2
  double log_det = 0;          // log(1 + s / c)
};

struct SpectrumMoments {
  double count = 0;    // number of eigenvalues
  double trace = 0;    // tr S
  double squares = 0;  // ||S||_F^2
  std::vector<ShiftMoments> shifts;
};

// The largest number of shifts in a certificate.
inline constexpr size_t kMaxShifts = 11;

struct Certificate {
  double constant;
  double linear;
  double quadratic;
  std::array<ShiftMoments, kMaxShifts> shifts;  // zero for unused shifts

  // Returns the sum of g over the spectrum.
  double evaluate(const SpectrumMoments& moments) const {
    double sum = constant * moments.count;
    sum += linear * moments.trace;
    sum += quadratic * moments.squares;
    for (size_t j = 0; j < moments.shifts.size(); ++j) {
      const auto &weight = shifts[j], &value = moments.shifts[j];
      sum += weight.inverse * value.inverse;
      sum += weight.inverse_squared * value.inverse_squared;
      sum += weight.log_det * value.log_det;
    }
    return sum;
  }
};

}  // namespace tensorion
