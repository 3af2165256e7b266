#include "tensorion/zolotarev.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

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

// What the inverse of one shifted matrix tells about the spectrum.
struct Traces {
  double log_det = 0;
  double trace = 0;    // of the inverse
  double squares = 0;  // of the inverse: its squared Frobenius norm
};

// Rows [first, last) of q (+)= sum_k scale[k] * inverse[k], lower triangle only, and the inverses' traces.
template <typename T>
void accumulate_rows(T* q, bool add, std::span<const T* const> inverses, std::span<const double> scales,
                     std::span<Traces> traces, int64_t m, int64_t first, int64_t last) {
  for (int64_t i = first; i < last; ++i) {
    T* row = q + i * m;
    for (size_t k = 0; k < inverses.size(); ++k) {
      const T* w = inverses[k] + i * m;
      const T scale = static_cast<T>(scales[k]);
      T squares = 0;
      if (add || k > 0) {
#pragma omp simd reduction(+ : squares)
        for (int64_t j = 0; j <= i; ++j) {
          row[j] += scale * w[j];
          squares += w[j] * w[j];
        }
      } else {
#pragma omp simd reduction(+ : squares)
        for (int64_t j = 0; j <= i; ++j) {
          row[j] = scale * w[j];
          squares += w[j] * w[j];
        }
      }
      const double diagonal = w[i];
      traces[k].squares += 2 * static_cast<double>(squares) - diagonal * diagonal;
      traces[k].trace += diagonal;
    }
  }
}

template <typename T>
void accumulate(at::Tensor& q, bool add, const std::vector<at::Tensor>& inverses,
                std::span<const double> scales, std::span<Traces> traces) {
  const int64_t m = q.size(0);
  std::vector<const T*> pointers;
  for (const auto& inverse : inverses) pointers.push_back(inverse.const_data_ptr<T>());
  // Row ranges of equal area under the diagonal, summed in order: the result does not depend on the threads.
  constexpr int64_t kChunks = 16;
  std::vector<std::vector<Traces>> partial(kChunks, std::vector<Traces>(inverses.size()));
  const auto boundary = [m](int64_t chunk) {
    return static_cast<int64_t>(std::llround(m * std::sqrt(static_cast<double>(chunk) / kChunks)));
  };
  at::parallel_for(0, kChunks, m < 256 ? kChunks : 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      accumulate_rows<T>(q.data_ptr<T>(), add, pointers, scales, partial[chunk], m, boundary(chunk),
                         boundary(chunk + 1));
    }
  });
  for (const auto& chunk : partial) {
    for (size_t k = 0; k < inverses.size(); ++k) {
      traces[k].trace += chunk[k].trace;
      traces[k].squares += chunk[k].squares;
    }
  }
}

// The same on any device; q is kept full.
void accumulate_generic(at::Tensor& q, bool add, const std::vector<at::Tensor>& inverses,
                        std::span<const double> scales, std::span<Traces> traces) {
  if (!add) q.zero_();
  for (size_t k = 0; k < inverses.size(); ++k) {
    const auto lower = inverses[k].tril();
    q.add_(lower, scales[k]);
    const auto diagonal = lower.diagonal().to(at::kDouble);
    traces[k].trace += diagonal.sum().item<double>();
    traces[k].squares +=
        2 * lower.square().sum(at::kDouble).item<double>() - diagonal.square().sum().item<double>();
  }
}

// How many inverses to compute side by side, each on one thread: LAPACK's own threads gain little there.
int64_t concurrency(const at::Tensor& s) {
  if (!s.is_cpu() || at::in_parallel_region() || s.size(0) < 128) return 1;
  const int threads = at::get_num_threads();
  return threads >= 2 && threads <= 4 ? 2 : 1;
}

// The best of the certificates on the moments of the spectrum of S, plus and minus the slack.
NuclearBounds certify(const Level& level, std::span<const double> moments, double slack) {
  NuclearBounds bounds{0, std::numeric_limits<double>::infinity()};
  for (size_t row = 0; row < level.upper.size(); row += moments.size()) {
    bounds.upper =
        std::min(bounds.upper, std::inner_product(moments.begin(), moments.end(), &level.upper[row], 0.0));
    bounds.lower =
        std::max(bounds.lower, std::inner_product(moments.begin(), moments.end(), &level.lower[row], 0.0));
  }
  return {std::max(0.0, bounds.lower - slack), bounds.upper + slack};
}

}  // namespace

GramMatrix::GramMatrix(const at::Tensor& a) : matrix(gram(a)) {
  const auto m = static_cast<double>(a.size(0));
  trace = matrix.diagonal().sum(at::kDouble).item<double>();
  squares = std::pow(at::linalg_vector_norm(matrix).item<double>(), 2);
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
  pass.q_ = at::empty_like(s);
  pass.floor_ = filter.floor;
  pass.resolution_ = filter.resolution * std::sqrt(lambda);
  std::vector<Traces> traces(poles);
  std::vector<at::Tensor> inverses;
  for (int64_t first = 0; first < poles; first += static_cast<int64_t>(inverses.size())) {
    const auto count = std::min(concurrency(s), poles - first);
    inverses.resize(count);
    const auto shift_and_invert = [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        auto& w = inverses[k];
        if (!w.defined()) w = at::empty_like(s);
        w.copy_(s);
        w.diagonal().add_(lambda * filter.c[first + k]);
        traces[first + k].log_det = invert_positive_(w).value_or(std::numeric_limits<double>::quiet_NaN());
      }
    };
    if (count == 1) {
      shift_and_invert(0, 1);
    } else {
      at::parallel_for(0, count, 1, shift_and_invert);
    }
    std::vector<double> scales;
    for (int64_t k = 0; k < count; ++k) {
      if (std::isnan(traces[first + k].log_det)) return std::nullopt;
      scales.push_back(std::sqrt(lambda) * filter.beta[first + k]);
    }
    const std::span<Traces> current(traces.data() + first, count);
    if (!s.is_cpu()) {
      accumulate_generic(pass.q_, first > 0, inverses, scales, current);
    } else if (s.scalar_type() == at::kFloat) {
      accumulate<float>(pass.q_, first > 0, inverses, scales, current);
    } else {
      accumulate<double>(pass.q_, first > 0, inverses, scales, current);
    }
  }
  pass.q_.diagonal().add_(filter.alpha / std::sqrt(lambda));
  mirror_lower_(pass.q_);

  std::vector<double> moments{static_cast<double>(m), gram.trace / lambda, gram.squares / (lambda * lambda)};
  double value = filter.alpha * gram.trace / lambda;
  for (int64_t j = 0; j < poles; ++j) {
    const double shift = lambda * filter.c[j];
    moments.push_back(shift * traces[j].trace);
    moments.push_back(shift * shift * traces[j].squares);
    moments.push_back(traces[j].log_det - m * std::log(shift));
    value += filter.beta[j] * (m - shift * traces[j].trace);  // tr of S (S + c I)^-1
  }
  pass.value_ = std::sqrt(lambda) * value;
  if (!filter.upper.empty()) {
    // Rounding moves the eigenvalues of S by some 2 eps, hence their roots by eps / sqrt(s + c) each, at most
    // eps sqrt(m tr (S + c_0)^-1) in sum.
    const double slack = epsilon(s) * std::sqrt(m * lambda * traces[0].trace);
    const auto bounds = certify(filter, moments, slack);
    pass.bounds_ = {std::sqrt(lambda) * bounds.lower,
                    std::min(gram.nuclear_upper, std::sqrt(lambda) * bounds.upper)};
  }
  return pass;
}

at::Tensor ZolotarevPass::apply(const at::Tensor& a) const { return at::mm(q_, a); }

}  // namespace tensorion
