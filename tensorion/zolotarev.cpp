#include "tensorion/zolotarev.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "tensorion/parallel.h"
#include "tensorion/scratch.h"
#include "tensorion/symmetric.h"
#include "tensorion/zolotarev_tables.h"

namespace tensorion {
namespace {

struct Level {
  double resolution;
  double floor;
  double alpha;
  std::span<const double> beta;
  std::span<const double> c;
  std::span<const double> upper;  // the certificates, one after the other; empty where there are none
  std::span<const double> lower;
};

template <size_t N>
std::span<const double> flat(const double (&rows)[zolotarev::kCertificates][N]) {
  return {&rows[0][0], zolotarev::kCertificates * N};
}

Level level(ZolotarevPass::Accuracy accuracy) {
  using namespace zolotarev;
  switch (accuracy) {
    case ZolotarevPass::Accuracy::light:
      return {kLightResolution, kLightFloor,       kLightAlpha,      kLightBeta,
              kLightC,          flat(kLightUpper), flat(kLightLower)};
    case ZolotarevPass::Accuracy::coarse:
      return {kCoarseResolution, kCoarseFloor,       kCoarseAlpha,      kCoarseBeta,
              kCoarseC,          flat(kCoarseUpper), flat(kCoarseLower)};
    default: return {kFineResolution, kFineFloor, kFineAlpha, kFineBeta, kFineC, {}, {}};
  }
}

double epsilon(const at::Tensor& a) { return a.scalar_type() == at::kDouble ? 2.3e-16 : 1.2e-7; }

// How many inverses to compute side by side, each on one thread: LAPACK's own threads gain little there.
int64_t concurrency(const at::Tensor& s) {
  if (!s.is_cpu() || at::in_parallel_region() || s.size(0) < 128) return 1;
  const int threads = at::get_num_threads();
  return threads >= 2 && threads <= 4 ? 2 : 1;
}

// What an inverse tells about the spectrum.
struct Inverse {
  double log_det;  // of the matrix that was inverted
  Moments moments;
};

// (S + c lambda I)^-1 in w, its lower triangle; nothing where that fails.
std::optional<double> shift_and_invert(const GramMatrix& gram, double c, at::Tensor& w) {
  w.copy_(gram.matrix);
  w.diagonal().add_(gram.lambda * c);
  return invert_positive_(w);
}

// The moments that certificates combine: of S alone, and those that an inverse adds.
std::vector<double> own_moments(const GramMatrix& gram) {
  return {static_cast<double>(gram.matrix.size(0)), gram.trace / gram.lambda,
          gram.squares / (gram.lambda * gram.lambda)};
}

void append_moments(std::vector<double>& moments, const GramMatrix& gram, double c, const Inverse& inverse) {
  const double shift = gram.lambda * c;
  moments.push_back(shift * inverse.moments.trace);
  moments.push_back(shift * shift * inverse.moments.squares);
  moments.push_back(inverse.log_det - gram.matrix.size(0) * std::log(shift));
}

// The best of the certificates. `inverse`: that with the smallest shift.
NuclearBounds certified(const GramMatrix& gram, std::span<const double> moments,
                        std::span<const double> upper, std::span<const double> lower,
                        const Inverse& inverse) {
  NuclearBounds bounds{0, std::numeric_limits<double>::infinity()};
  for (size_t row = 0; row < upper.size(); row += moments.size()) {
    bounds.upper =
        std::min(bounds.upper, std::inner_product(moments.begin(), moments.end(), &upper[row], 0.0));
    bounds.lower =
        std::max(bounds.lower, std::inner_product(moments.begin(), moments.end(), &lower[row], 0.0));
  }
  // Rounding adds a matrix E to S, of a Frobenius norm of about eps tr S (twice that is assumed), which moves
  // the sum of the roots of s + c by at most ||E||_F sqrt(tr (S + c I)^-1) / 2.
  const double slack =
      epsilon(gram.matrix) * gram.trace / gram.lambda * std::sqrt(gram.lambda * inverse.moments.trace);
  const double root = std::sqrt(gram.lambda);
  return {std::max(0.0, root * (bounds.lower - slack)),
          std::min(gram.nuclear_upper, root * (bounds.upper + slack))};
}

}  // namespace

GramMatrix::GramMatrix(const at::Tensor& a) : matrix(lower_gram(a)) {
  const auto m = static_cast<double>(a.size(0));
  const auto moments = accumulate_lower(nullptr, false, {matrix}, {})[0];
  trace = moments.trace;
  squares = moments.squares;
  // From mean and variance of the m eigenvalues: the largest is largest, and the sum of their roots too,
  // where one is large and the others are equal.
  const double mean = trace / m;
  const double variance = std::max(0.0, squares / m - mean * mean);
  lambda = (mean + std::sqrt((m - 1) * variance)) * (1 + 8 * epsilon(a));
  const double others = m > 1 ? std::max(0.0, mean - std::sqrt(variance / (m - 1))) : 0;
  nuclear_upper = (std::sqrt(lambda) + (m - 1) * std::sqrt(others)) * (1 + 1e-6);
}

std::optional<ZolotarevPass> ZolotarevPass::solve(const GramMatrix& gram, Accuracy accuracy) {
  const auto filter = level(accuracy);
  const auto poles = static_cast<int64_t>(filter.c.size());
  const auto& s = gram.matrix;
  const int64_t m = s.size(0);
  const double lambda = gram.lambda;
  if (!(lambda > 0) || !std::isfinite(lambda)) return std::nullopt;

  ZolotarevPass pass;
  pass.q_ = scratch({m, m}, s.options());
  pass.floor_ = filter.floor;
  pass.resolution_ = filter.resolution * std::sqrt(lambda);
  std::vector<Inverse> told(poles);
  std::vector<at::Tensor> inverses;
  for (int64_t first = 0; first < poles; first += static_cast<int64_t>(inverses.size())) {
    const auto count = std::min(concurrency(s), poles - first);
    inverses.resize(count);
    for (auto& w : inverses) {
      if (!w.defined()) w = scratch({m, m}, s.options());
    }
    const auto invert = [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        told[first + k].log_det = shift_and_invert(gram, filter.c[first + k], inverses[k])
                                      .value_or(std::numeric_limits<double>::quiet_NaN());
      }
    };
    if (count == 1) {
      invert(0, 1);
    } else {
      parallel_calls(0, count, 1, invert);
    }
    std::vector<double> scales;
    for (int64_t k = 0; k < count; ++k) {
      if (std::isnan(told[first + k].log_det)) return std::nullopt;
      scales.push_back(std::sqrt(lambda) * filter.beta[first + k]);
    }
    const auto moments = accumulate_lower(&pass.q_, first > 0, inverses, scales);
    for (int64_t k = 0; k < count; ++k) told[first + k].moments = moments[k];
  }
  pass.q_.diagonal().add_(filter.alpha / std::sqrt(lambda));
  mirror_lower_(pass.q_);

  pass.moments_ = own_moments(gram);
  double value = filter.alpha * gram.trace / lambda;
  for (int64_t j = 0; j < poles; ++j) {
    append_moments(pass.moments_, gram, filter.c[j], told[j]);
    value += filter.beta[j] * (m - lambda * filter.c[j] * told[j].moments.trace);  // tr of S (S + c I)^-1
  }
  pass.value_ = std::sqrt(lambda) * value;
  pass.refinable_ = accuracy == Accuracy::light;
  if (!filter.upper.empty()) {
    pass.bounds_ = certified(gram, pass.moments_, filter.upper, filter.lower, told[0]);
  }
  return pass;
}

bool ZolotarevPass::refine(const GramMatrix& gram) {
  if (!refinable_) return false;
  refinable_ = false;
  auto w = scratch(gram.matrix.sizes(), gram.matrix.options());
  const auto log_det = shift_and_invert(gram, zolotarev::kExtraC, w);
  if (!log_det) return false;
  const Inverse inverse{*log_det, accumulate_lower(nullptr, false, {w}, {})[0]};
  append_moments(moments_, gram, zolotarev::kExtraC, inverse);
  const auto bounds = certified(gram, moments_, flat(zolotarev::kLightExtraUpper),
                                flat(zolotarev::kLightExtraLower), inverse);
  bounds_ = {std::max(bounds_.lower, bounds.lower), std::min(bounds_.upper, bounds.upper)};
  return true;
}

at::Tensor ZolotarevPass::apply(const at::Tensor& a) const {
  // Laid out as a is.
  auto x =
      a.is_contiguous() ? scratch(a.sizes(), a.options()) : scratch({a.size(1), a.size(0)}, a.options()).mT();
  return at::mm_out(x, q_, a);
}

}  // namespace tensorion
