// Sums over a spectrum, and certificates that combine them.
//
// For S = A A^T / lambda with eigenvalues s in [0, 1], factorizations of S + c I give away the sums over the
// spectrum of
//   1, s, s^2  and, for each shift c,  c / (s + c), (c / (s + c))^2, log(1 + s / c).
// A certificate is a combination g of these functions with g(s) >= sqrt(s) on [0, 1], or with g(s) <=
// sqrt(s). Its sum over the spectrum bounds ||A||_* / sqrt(lambda). scripts/make_rational_filter_tables.py
// solves for the weights.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace tensorion {

// lower <= ||A||_* <= upper.
struct NuclearBounds {
  double lower = 0;
  double upper = 0;
};

// The sums for one shift, or the weights of these sums.
struct ShiftMoments {
  double inverse = 0;          // c / (s + c)
  double inverse_squared = 0;  // its square
  double log_det = 0;          // log(1 + s / c)
};

struct SpectrumMoments {
  double count = 0;    // of eigenvalues
  double trace = 0;    // of S
  double squares = 0;  // of S: ||S||_F^2
  std::vector<ShiftMoments> shifts;
};

// As many shifts as the longest certificate has.
inline constexpr size_t kMaxShifts = 11;

struct Certificate {
  double constant;
  double linear;
  double quadratic;
  std::array<ShiftMoments, kMaxShifts> shifts;  // zero for those that the certificate does not use

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
