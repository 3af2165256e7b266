#include "tensorion/zolotarev.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "tensorion/symmetric.h"
#include "tensorion/zolotarev_tables.h"

namespace tensorion {
namespace {

struct Weights {
  double floor;
  double alpha;
  std::span<const double> beta;
  std::span<const double> c;
};

Weights weights(ZolotarevPass::Accuracy accuracy) {
  using namespace zolotarev;
  if (accuracy == ZolotarevPass::Accuracy::coarse) return {kCoarseFloor, kCoarseAlpha, kCoarseBeta, kCoarseC};
  return {kFineFloor, kFineAlpha, kFineBeta, kFineC};
}

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
void accumulate(at::Tensor& q, bool add, const std::vector<at::Tensor>& inverses, std::span<const double> scales,
                std::span<Traces> traces) {
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
      accumulate_rows<T>(q.data_ptr<T>(), add, pointers, scales, partial[chunk], m, boundary(chunk), boundary(chunk + 1));
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
void accumulate_generic(at::Tensor& q, bool add, const std::vector<at::Tensor>& inverses, std::span<const double> scales,
                        std::span<Traces> traces) {
  if (!add) q.zero_();
  for (size_t k = 0; k < inverses.size(); ++k) {
    const auto lower = inverses[k].tril();
    q.add_(lower, scales[k]);
    const auto diagonal = lower.diagonal().to(at::kDouble);
    traces[k].trace += diagonal.sum().item<double>();
    traces[k].squares += 2 * lower.square().sum(at::kDouble).item<double>() - diagonal.square().sum().item<double>();
  }
}

// How many inverses to compute side by side, each on one thread: LAPACK's own threads gain little there.
int64_t concurrency(const at::Tensor& s) {
  if (!s.is_cpu() || at::in_parallel_region() || s.size(0) < 128) return 1;
  const int threads = at::get_num_threads();
  return threads >= 2 && threads <= 4 ? 2 : 1;
}

NuclearBounds certify(std::span<const double> moments, double scale, double slack) {
  using namespace zolotarev;
  NuclearBounds bounds{0, std::numeric_limits<double>::infinity()};
  for (int k = 0; k < kCertificates; ++k) {
    double upper = 0, lower = 0;
    for (int i = 0; i < kMoments; ++i) {
      upper += kUpper[k][i] * moments[i];
      lower += kLower[k][i] * moments[i];
    }
    bounds.upper = std::min(bounds.upper, upper);
    bounds.lower = std::max(bounds.lower, lower);
  }
  return {std::max(0.0, scale * (bounds.lower - slack)), scale * (bounds.upper + slack)};
}

}  // namespace

std::optional<ZolotarevPass> ZolotarevPass::solve(const at::Tensor& a, Accuracy accuracy, double bar) {
  const auto [floor, alpha, beta, c] = weights(accuracy);
  const auto poles = static_cast<int64_t>(c.size());
  const int64_t m = a.size(0);
  const auto s = gram(a);

  // The largest eigenvalue from the trace t and the sum of squares u of all m eigenvalues:
  // t/m + sqrt((m-1)/m (u - t^2/m)) bounds it, with equality where the others are equal.
  const double epsilon = a.scalar_type() == at::kDouble ? 2.3e-16 : 1.2e-7;
  const double t = s.diagonal().sum(at::kDouble).item<double>();
  const double u = std::pow(at::linalg_vector_norm(s).item<double>(), 2);
  const double mean = t / m;
  const double variance = std::max(0.0, u / m - mean * mean);
  const double lambda = (mean + std::sqrt((m - 1) * variance)) * (1 + 8 * epsilon);
  if (!(lambda > 0) || !std::isfinite(lambda)) return std::nullopt;

  ZolotarevPass pass;
  // The sum of the roots is largest for that same spectrum: one eigenvalue large, the others equal.
  const double others = m > 1 ? std::max(0.0, mean - std::sqrt(variance / (m - 1))) : 0;
  pass.bounds_.upper = (std::sqrt(lambda) + (m - 1) * std::sqrt(others)) * (1 + 1e-6);
  if (pass.bounds_.upper < bar) return pass;
  pass.q_ = at::empty_like(s);
  pass.floor_ = floor;
  pass.resolution_ = zolotarev::kResolution * std::sqrt(lambda);
  std::vector<Traces> traces(poles);
  const int64_t workers = concurrency(s);
  std::vector<at::Tensor> inverses;
  for (int64_t k = 0; k < workers; ++k) inverses.push_back(at::empty_like(s));
  for (int64_t first = 0; first < poles; first += workers) {
    const auto shift_and_invert = [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        auto& w = inverses[k];
        w.copy_(s);
        w.diagonal().add_(lambda * c[first + k]);
        const auto log_det = invert_positive_(w);
        traces[first + k].log_det = log_det.value_or(std::numeric_limits<double>::quiet_NaN());
      }
    };
    if (workers == 1) {
      shift_and_invert(0, 1);
    } else {
      at::parallel_for(0, workers, 1, shift_and_invert);
    }
    std::vector<double> scales;
    for (int64_t k = 0; k < workers; ++k) {
      if (std::isnan(traces[first + k].log_det)) return std::nullopt;
      scales.push_back(std::sqrt(lambda) * beta[first + k]);
    }
    const std::span<Traces> current(traces.data() + first, workers);
    if (!s.is_cpu()) {
      accumulate_generic(pass.q_, first > 0, inverses, scales, current);
    } else if (s.scalar_type() == at::kFloat) {
      accumulate<float>(pass.q_, first > 0, inverses, scales, current);
    } else {
      accumulate<double>(pass.q_, first > 0, inverses, scales, current);
    }
  }
  pass.q_.diagonal().add_(alpha / std::sqrt(lambda));
  mirror_lower_(pass.q_);

  if (accuracy == Accuracy::coarse) {
    std::vector<double> moments{static_cast<double>(m), t / lambda, u / (lambda * lambda)};
    for (int64_t j = 0; j < poles; ++j) {
      const double shift = lambda * c[j];
      moments.push_back(shift * traces[j].trace);
      moments.push_back(shift * shift * traces[j].squares);
      moments.push_back(traces[j].log_det - m * std::log(shift));
    }
    // Rounding moves the eigenvalues of S by some 2 eps, hence their roots by eps / sqrt(s + c) each, at most
    // eps sqrt(m tr (S + c_0)^-1) in sum.
    const double slack = epsilon * std::sqrt(m * lambda * traces[0].trace);
    pass.bounds_ = certify(moments, std::sqrt(lambda), slack);
  }
  return pass;
}

at::Tensor ZolotarevPass::apply(const at::Tensor& a) const { return at::mm(q_, a); }

}  // namespace tensorion
