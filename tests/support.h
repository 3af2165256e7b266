// Helpers of the tests: seeded inputs with known spectra, tolerances derived from dtype and size, comparisons
// that report the worst element, and guards for the number of threads.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace tensorion::testing {

inline at::TensorOptions options(at::ScalarType dtype) { return at::TensorOptions().dtype(dtype); }

inline at::Generator generator(uint64_t seed) { return at::detail::createCPUGenerator(seed); }

inline at::Tensor gaussian(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype = at::kFloat) {
  return at::randn(shape, generator(seed), options(at::kDouble)).to(dtype);
}

// Returns U diag(singular_values) V^T with random orthonormal U (m x k) and V (n x k).
inline at::Tensor with_spectrum(const at::Tensor& singular_values, int64_t m, int64_t n, uint64_t seed,
                                at::ScalarType dtype = at::kFloat) {
  const int64_t k = singular_values.numel();
  const auto u = std::get<0>(at::linalg_qr(gaussian({m, k}, seed, at::kDouble)));
  const auto v = std::get<0>(at::linalg_qr(gaussian({n, k}, seed + 1, at::kDouble)));
  return at::matmul(u * singular_values.to(at::kDouble), v.mT()).to(dtype).contiguous();
}

// Returns the singular values sigma_i = i^-exponent, i = 1, ..., count.
inline at::Tensor power_law(int64_t count, double exponent) {
  return at::arange(1, count + 1, options(at::kDouble)).pow(-exponent);
}

// Returns the machine epsilon: the distance from 1 to the next larger number.
inline double epsilon(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBFloat16: return std::ldexp(1, -7);
    case at::kHalf: return std::ldexp(1, -10);
    case at::kFloat: return std::numeric_limits<float>::epsilon();
    default: return std::numeric_limits<double>::epsilon();
  }
}

// Returns a tolerance for the rounding error of a result, relative to its largest element, that holds on any
// CPU and for any number of threads. The result consists of `steps` sums of `terms` products, each computed
// from the previous one. Errors of random sign add up to about sqrt(terms) * epsilon in each sum (Higham and
// Mary, 2019). A factor of four allows for the rounding of both results that are compared. Each step
// amplifies earlier errors by at most `growth`.
inline double rounding(at::ScalarType dtype, int64_t terms, int64_t steps = 1, double growth = 1) {
  double total = 0;
  for (int64_t step = 0; step < steps; ++step) total = growth * total + 1;
  return 4 * std::sqrt(static_cast<double>(std::max<int64_t>(terms, 1))) * epsilon(dtype) * total;
}

// Returns the ratio of the largest to the smallest singular value, computed in double precision.
inline double condition_number(const at::Tensor& a) {
  const auto values = at::linalg_svdvals(a.to(at::kDouble));
  return (values.max() / values.min()).item<double>();
}

// Returns a tolerance for the rounding error of an element of the polar factor of `a`, or of each matrix of a
// batch. Errors in the direction of the smallest singular value are amplified by the condition number.
// "halley" works with the Gram matrix, whose condition number is the square of this, in about three
// iterations.
inline double polar_rounding(const at::Tensor& a, const std::string& method = "halley") {
  if (a.numel() == 0) return 0;
  double condition = 1;
  for (const auto& matrix : a.reshape({-1, a.size(-2), a.size(-1)}).unbind()) {
    if (matrix.count_nonzero().item<int64_t>() == 0) continue;
    condition = std::max(condition, condition_number(matrix));
  }
  const auto dtype = a.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const int64_t terms = std::max(a.size(-2), a.size(-1));
  if (method == "svd") return rounding(dtype, terms) * condition;
  if (method == "newton_schulz") return rounding(dtype, terms, 5) * condition;
  return rounding(dtype, terms, 3) * condition * condition;
}

// Sets the number of threads until the end of the scope, even if an assertion fails.
class ThreadGuard {
 public:
  explicit ThreadGuard(int threads) : before_(at::get_num_threads()) { at::set_num_threads(threads); }
  ~ThreadGuard() { at::set_num_threads(before_); }
  ThreadGuard(const ThreadGuard&) = delete;
  ThreadGuard& operator=(const ThreadGuard&) = delete;

 private:
  int before_;
};

// TENSORION_TEST_THREADS=4 runs the tests with four threads. If it is not set, OMP_NUM_THREADS applies.
class ThreadEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    if (const char* threads = std::getenv("TENSORION_TEST_THREADS")) at::set_num_threads(std::stoi(threads));
  }
};
inline ::testing::Environment* const kThreadEnvironment =
    ::testing::AddGlobalTestEnvironment(new ThreadEnvironment);

// Expects |actual - expected| <= tolerance * max(1, max |expected|) for all elements.
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

// Expects the call to throw an exception of type E whose message contains `part`.
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
