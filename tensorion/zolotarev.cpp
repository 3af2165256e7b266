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
  std::span<const double> value_sensitivity;
};

template <size_t N>
std::span<const double> flat(const double (&rows)[zolotarev::kCertificates][N]) {
  return {&rows[0][0], zolotarev::kCertificates * N};
}

Level level(ZolotarevPass::Accuracy accuracy) {
  namespace tables = zolotarev;
  switch (accuracy) {
    case ZolotarevPass::Accuracy::light:
      return {tables::kLightResolution,  tables::kLightFloor,
              tables::kLightAlpha,       tables::kLightBeta,
              tables::kLightC,           flat(tables::kLightUpper),
              flat(tables::kLightLower), tables::kLightValueSensitivity};
    case ZolotarevPass::Accuracy::coarse:
      return {tables::kCoarseResolution,  tables::kCoarseFloor,
              tables::kCoarseAlpha,       tables::kCoarseBeta,
              tables::kCoarseC,           flat(tables::kCoarseUpper),
              flat(tables::kCoarseLower), tables::kCoarseValueSensitivity};
    default:
      return {tables::kFineResolution,
              tables::kFineFloor,
              tables::kFineAlpha,
              tables::kFineBeta,
              tables::kFineC,
              {},
              {},
              {}};
  }
}

// A bound of ||a a^T - s||_F / tr s. In single precision no bound for every a is of use: n eps is a hundred
// times what most have. But values that are alike, whose errors all have one sign, do come near to it. So the
// error is measured, on the heaviest rows, and doubled; eps is added for the factorization of s.
double relative_rounding(const at::Tensor& a, const at::Tensor& s) {
  if (a.scalar_type() == at::kDouble) return static_cast<double>(a.size(0) + a.size(1)) * 2.3e-16;
  constexpr int64_t kRows = 8;
  auto rows = a, computed = s;
  if (a.size(0) > kRows) {
    const auto heaviest =
        std::get<0>(std::get<1>(s.diagonal().topk(kRows)).sort());  // the triangle stays lower
    rows = a.index_select(0, heaviest);
    computed = s.index_select(0, heaviest).index_select(1, heaviest);
  }
  rows = rows.to(at::kDouble);
  const auto exact = at::mm(rows, rows.mT());
  const auto error = lower_moments(computed.to(at::kDouble).sub_(exact).contiguous());
  const double trace = exact.diagonal().sum().item<double>();
  return 1.2e-7 + (trace > 0 ? 2 * std::sqrt(error.squares) / trace : 0);
}

// How many inverses to compute side by side, each on one thread: LAPACK's own threads gain little there.
int64_t concurrency(const at::Tensor& s) {
  if (!s.is_cpu() || at::in_parallel_region() || s.size(0) < 128) return 1;
  const int threads = at::get_num_threads();
  return threads >= 2 && threads <= 4 ? 2 : 1;
}

// Replaces w, the lower triangle of S, by that of (S + shift I)^-1 and appends what that tells of the
// spectrum of S / lambda: the traces of c / (s + c) and its square, and the sum of log(1 + s / c). Nothing is
// appended where the factorization fails.
std::optional<Moments> shift_and_invert(at::Tensor& w, double shift, std::vector<double>& moments) {
  w.diagonal().add_(shift);
  const auto log_det = invert_positive_(w);
  if (!log_det) return std::nullopt;
  const auto inverse = lower_moments(w);
  moments.push_back(shift * inverse.trace);
  moments.push_back(shift * shift * inverse.squares);
  moments.push_back(*log_det - w.size(0) * std::log(shift));
  return inverse;
}

}  // namespace

GramMatrix::GramMatrix(const at::Tensor& a) : matrix(lower_gram(a)) {
  const auto m = static_cast<double>(a.size(0));
  const auto moments = lower_moments(matrix);
  trace = moments.trace;
  squares = moments.squares;
  rounding = relative_rounding(a, matrix) * trace;
  // From mean and variance of the m eigenvalues: the largest is largest, and the sum of their roots too,
  // where one is large and the others are equal.
  const double mean = trace / m;
  const double variance = std::max(0.0, squares / m - mean * mean);
  lambda = mean + std::sqrt((m - 1) * variance) + rounding;
  // Near rank one, rounding decides about the others.
  const double high = (trace + rounding) / m;
  const double norm = std::max(0.0, std::sqrt(squares) - rounding);
  const double least = std::max(0.0, norm * norm / m - high * high);
  const double others = m > 1 ? std::max(0.0, high - std::sqrt(least / (m - 1))) : 0;
  nuclear_upper = (std::sqrt(lambda) + (m - 1) * std::sqrt(others)) * (1 + 1e-6);
}

std::optional<ZolotarevPass> ZolotarevPass::solve(const GramMatrix& gram, Accuracy accuracy) {
  TORCH_INTERNAL_ASSERT(accuracy != Accuracy::coarse, "a light pass is refined to a coarse one");
  const auto filter = level(accuracy);
  const auto poles = static_cast<int64_t>(filter.c.size());
  const auto& s = gram.matrix;
  const double lambda = gram.lambda;
  if (!(lambda > 0) || !std::isfinite(lambda)) return std::nullopt;

  ZolotarevPass pass(accuracy, lambda);
  pass.moments_ = {static_cast<double>(s.size(0)), gram.trace / lambda, gram.squares / (lambda * lambda)};
  for (int64_t first = 0; first < poles;) {
    const auto count = std::min(concurrency(s), poles - first);
    std::vector<at::Tensor> group;
    for (int64_t k = 0; k < count; ++k) group.push_back(scratch(s.sizes(), s.options()));
    std::vector<std::vector<double>> told(count);
    std::vector<std::optional<Moments>> inverses(count);
    const auto invert = [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        group[k].copy_(s);
        inverses[k] = shift_and_invert(group[k], lambda * filter.c[first + k], told[k]);
      }
    };
    if (count == 1) {
      invert(0, 1);
    } else {
      parallel_calls(0, count, 1, invert);
    }
    std::vector<double> scales;
    for (int64_t k = 0; k < count; ++k) {
      const auto& inverse = inverses[k];
      if (!inverse) return std::nullopt;
      pass.moments_.insert(pass.moments_.end(), told[k].begin(), told[k].end());
      pass.inverses_.push_back(group[k]);
      scales.push_back(std::sqrt(lambda) * filter.beta[first + k]);
    }
    // The poles of a fine pass are too many to be kept.
    if (accuracy == Accuracy::fine) {
      if (pass.q_.defined()) {
        pass.inverses_.push_back(pass.q_);
        scales.push_back(1);
      }
      pass.q_ = combine_lower(pass.inverses_, scales);
      pass.inverses_.clear();
    }
    first += count;
  }
  if (accuracy == Accuracy::light) pass.certify(gram);
  return pass;
}

bool ZolotarevPass::refine(GramMatrix& gram) {
  if (accuracy_ != Accuracy::light || q_.defined()) return false;
  const auto inverse = shift_and_invert(gram.matrix, lambda_ * zolotarev::kCoarseC[3], moments_);
  if (!inverse) return false;
  inverses_.push_back(std::move(gram.matrix));
  accuracy_ = Accuracy::coarse;
  certify(gram);
  return true;
}

void ZolotarevPass::certify(const GramMatrix& gram) {
  const auto filter = level(accuracy_);
  const double m = moments_[0];
  double value = filter.alpha * moments_[1];
  for (size_t j = 0; j < filter.c.size(); ++j)
    value += filter.beta[j] * (m - moments_[3 + 3 * j]);  // tr of S (S + c I)^-1
  // How far rounding may move a trace of g(S): see scripts/make_zolotarev_tables.py.
  const auto smallest = std::min_element(filter.c.begin(), filter.c.end()) - filter.c.begin();
  const double u = moments_[3 + 3 * smallest], u2 = moments_[4 + 3 * smallest];
  const double far = std::sqrt(std::max(0.0, m - 2 * u + u2));
  const auto moved = [&](std::span<const double> sensitivity) {
    return gram.rounding / lambda_ *
           std::min(std::sqrt(sensitivity[0] * u + sensitivity[1] * u2),
                    sensitivity[2] + sensitivity[3] * far);
  };
  const double root = std::sqrt(lambda_);
  const size_t count = moments_.size();
  for (int k = 0; k < zolotarev::kCertificates; ++k) {
    const auto combined = [&](std::span<const double> table, double sign) {
      const auto row = table.subspan(k * (count + 4), count + 4);
      return root * (std::inner_product(moments_.begin(), moments_.end(), row.begin(), 0.0) +
                     sign * moved(row.last(4)));
    };
    bounds_.lower = std::max(bounds_.lower, combined(filter.lower, -1));
    bounds_.upper = std::min(bounds_.upper, combined(filter.upper, 1));
  }
  bounds_.upper = std::min(bounds_.upper, gram.nuclear_upper);
  value_rounding_ = root * moved(filter.value_sensitivity);
  value_ = root * value - value_rounding_;
}

double ZolotarevPass::resolution() const { return level(accuracy_).resolution * std::sqrt(lambda_); }

double ZolotarevPass::floor() const { return level(accuracy_).floor; }

at::Tensor ZolotarevPass::apply(const at::Tensor& a) {
  const auto filter = level(accuracy_);
  if (!q_.defined()) {
    std::vector<double> scales;
    for (const double beta : filter.beta) scales.push_back(std::sqrt(lambda_) * beta);
    q_ = combine_lower(inverses_, scales);
    inverses_.clear();
  }
  q_.diagonal().add_(filter.alpha / std::sqrt(lambda_));
  mirror_lower_(q_);
  // Laid out as a is.
  auto x =
      a.is_contiguous() ? scratch(a.sizes(), a.options()) : scratch({a.size(1), a.size(0)}, a.options()).mT();
  at::mm_out(x, q_, a);
  q_.reset();
  return x;
}

}  // namespace tensorion
