// What several tests need: seeded inputs with known spectra, and comparisons
// whose failure names the worst element.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace tensorion::testing {

inline at::TensorOptions options(at::ScalarType dtype) { return at::TensorOptions().dtype(dtype); }

inline at::Generator generator(uint64_t seed) { return at::detail::createCPUGenerator(seed); }

inline at::Tensor gaussian(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype = at::kFloat) {
  return at::randn(shape, generator(seed), options(at::kDouble)).to(dtype);
}

// U diag(singular_values) V^T with random orthonormal U (m x k), V (n x k).
inline at::Tensor with_spectrum(const at::Tensor& singular_values, int64_t m, int64_t n, uint64_t seed,
                                at::ScalarType dtype = at::kFloat) {
  const int64_t k = singular_values.numel();
  const auto u = std::get<0>(at::linalg_qr(gaussian({m, k}, seed, at::kDouble)));
  const auto v = std::get<0>(at::linalg_qr(gaussian({n, k}, seed + 1, at::kDouble)));
  return at::matmul(u * singular_values.to(at::kDouble), v.mT()).to(dtype).contiguous();
}

// sigma_i = i^-exponent.
inline at::Tensor power_law(int64_t count, double exponent) {
  return at::arange(1, count + 1, options(at::kDouble)).pow(-exponent);
}

// |actual - expected| <= tolerance * max(1, max |expected|) everywhere.
inline void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                         const std::string& what = "") {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  if (expected.numel() == 0) return;
  const auto difference = (actual.to(at::kDouble) - expected.to(at::kDouble)).abs().flatten();
  const double scale = std::max(1.0, expected.to(at::kDouble).abs().max().item<double>());
  const auto worst = difference.argmax().item<int64_t>();
  const double error = difference[worst].item<double>();
  EXPECT_LE(error, tolerance * scale)
      << what << ": worst at flat index " << worst << ", got " << actual.flatten()[worst].item<double>()
      << ", expected " << expected.flatten()[worst].item<double>();
}

// The call throws an exception of type E whose message contains `part`.
template <typename E>
void expect_error(const std::function<void()>& call, const std::string& part) {
  try {
    call();
  } catch (const E& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
        << "expected \"" << part << "\" in: " << error.what();
    return;
  }
  ADD_FAILURE() << "expected an error with \"" << part << "\"";
}

}  // namespace tensorion::testing
