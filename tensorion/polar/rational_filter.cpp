#include "tensorion/polar/rational_filter.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tensorion/core/gemm.h"
#include "tensorion/core/parallel.h"
#include "tensorion/core/scratch_arena.h"
#include "tensorion/polar/symmetric.h"

namespace tensorion {
namespace {

namespace tables = rational_filter_tables;
using tables::FilterLevel;
using tables::FilterWeights;
using tables::Sensitivity;

constexpr size_t kFirstPoles = 2;

const FilterLevel& level(size_t poles) { return tables::kFilterLevels[poles - kFirstPoles]; }

bool is_usable(const GramMatrix& gram) { return gram.lambda > 0 && std::isfinite(gram.lambda); }

// The moments of the spectrum of matrix / lambda for the shift c.
ShiftMoments moments_of(const ShiftedInverse& inverse, const GramMatrix& gram, double c) {
  const auto moments = lower_moments(inverse.lower);
  const double shift = gram.lambda * c;
  return {shift * moments.trace, shift * shift * moments.squares, inverse.log_det};
}

}  // namespace

RationalFilter::RationalFilter(const GramMatrix& gram)
    : s_(gram.matrix), lambda_(gram.lambda), moments_(gram.moments()) {}

bool RationalFilter::add_inverses(const GramMatrix& gram, size_t count) {
  const size_t first = inverses_.size();
  std::vector<std::optional<ShiftedInverse>> results(count);
  std::vector<ShiftMoments> moments(count);
  const auto end = static_cast<int64_t>(count);
  parallel_for_with_tls(0, end, use_paired_threads(s_) ? 1 : end, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const double pole = tables::kPoles[first + k];
      results[k] = gram.inverse(pole);
      if (results[k]) moments[k] = moments_of(*results[k], gram, pole);
    }
  });
  for (size_t k = 0; k < count; ++k) {
    const auto& inverse = results[k];
    if (!inverse) return false;
    moments_.shifts.push_back(moments[k]);
    inverses_.push_back(inverse->lower);
  }
  return true;
}

std::optional<RationalFilter> RationalFilter::solve(const GramMatrix& gram) {
  if (!is_usable(gram)) return std::nullopt;
  RationalFilter filter(gram);
  if (!filter.add_inverses(gram, kFirstPoles)) return std::nullopt;
  filter.update_bounds_and_weights(gram, kFirstPoles);
  return filter;
}

bool RationalFilter::refine(const GramMatrix& gram) {
  const size_t done = inverses_.size();
  const auto resolved = [&](size_t pole) {
    return gram.inverse_growth(tables::kPoles[pole], gram.spectral_rounding, min_eigenvalue_).has_value();
  };
  if (done == tables::kMaxPoles || !resolved(done)) return false;
  // If the quality is far from the target, add two poles at once.
  const bool add_two =
      done == 2 && use_paired_threads(s_) && value_ < 0.8 * bounds_.upper && resolved(done + 1);
  if (!add_inverses(gram, add_two ? 2 : 1) && inverses_.size() == done) return false;
  for (size_t poles = done + 1; poles <= inverses_.size(); ++poles) update_bounds_and_weights(gram, poles);
  return true;
}

void RationalFilter::update_bounds_and_weights(const GramMatrix& gram, size_t poles) {
  const auto& tables = level(poles);
  const double m = moments_.count, root = std::sqrt(lambda_);
  const auto smallest = std::min_element(tables::kPoles, tables::kPoles + poles) - tables::kPoles;
  const double c = tables::kPoles[smallest];
  const auto& inverse = moments_.shifts[smallest];
  // Every term c / (s + c) of the trace is at most the trace.
  min_eigenvalue_ = std::max(min_eigenvalue_, c / inverse.inverse - c);
  const auto growth = gram.inverse_growth(c, gram.spectral_rounding, min_eigenvalue_);
  if (!growth) return;
  // The moments are those of the computed matrix. Multiplied by powers of `growth`, they bound the moments of
  // every matrix between the computed and the exact one.
  const double u = *growth * inverse.inverse, u2 = *growth * *growth * inverse.inverse_squared;
  const double tail_norm = std::sqrt(std::max(0.0, m - 2 * inverse.inverse + inverse.inverse_squared)) +
                           *growth * *growth * gram.rounding / (c * lambda_);
  // Bounds the effect of rounding on the trace of g(S). See scripts/make_rational_filter_tables.py.
  const auto rounding_error = [&](const Sensitivity& k) {
    return gram.rounding / lambda_ *
           std::min(std::sqrt(k.inverse * u + k.inverse_squared * u2), k.at_zero + k.tail * tail_norm);
  };
  for (size_t i = 0; i < tables.upper.size(); ++i) {
    const auto &below = tables.lower[i], &above = tables.upper[i];
    bounds_.lower =
        std::max(bounds_.lower, root * (below.bound.evaluate(moments_) - rounding_error(below.sensitivity)));
    const double upper = root * (above.bound.evaluate(moments_) + rounding_error(above.sensitivity));
    if (upper >= bounds_.upper) continue;
    bounds_.upper = upper;
    upper_rounding_ = root * rounding_error(above.sensitivity);
  }
  if (gram.nuclear_upper < bounds_.upper) {
    bounds_.upper = gram.nuclear_upper;
    upper_rounding_ = gram.upper_rounding;
  }
  for (const auto& filter : tables.filters) {
    double value = filter.alpha * moments_.trace + filter.gamma * moments_.squares;
    for (size_t j = 0; j < poles; ++j) {
      value += filter.beta[j] * (m - moments_.shifts[j].inverse);  // tr S (S + c_j I)^-1
    }
    const double rounding = rounding_error(filter.sensitivity);
    if (root * (value - rounding) <= value_) continue;  // value_ may come from fewer poles
    weights_ = &filter;
    weighted_poles_ = poles;
    value_ = root * (value - rounding);
    value_rounding_ = root * rounding;
  }
}

double RationalFilter::cutoff() const { return level(weighted_poles_).cutoff * std::sqrt(lambda_); }

void RationalFilter::maximize_passband() {
  weighted_poles_ = inverses_.size();
  const auto& filters = level(weighted_poles_).filters;
  weights_ = std::max_element(filters.begin(), filters.end(),
                              [](const auto& a, const auto& b) { return a.passband_min < b.passband_min; });
}

at::Tensor RationalFilter::matrix() && {
  const double root = std::sqrt(lambda_);
  inverses_.resize(weighted_poles_);
  std::vector<double> scales;
  for (size_t j = 0; j < weighted_poles_; ++j) scales.push_back(root * weights_->beta[j]);
  auto matrices = std::move(inverses_);
  matrices.push_back(std::move(s_));
  scales.push_back(weights_->gamma / (lambda_ * root));
  auto q = combine_lower(matrices, scales);
  matrices.clear();  // Free their memory for the product.
  add_to_diagonal_(q, weights_->alpha / root);
  mirror_lower_(q);
  return q;
}

std::optional<FineFilterResult> apply_fine_filter(const at::Tensor& a) {
  const GramMatrix gram(a);
  if (!is_usable(gram)) return std::nullopt;
  const double root = std::sqrt(gram.lambda);
  // To save memory, accumulate the sum over the poles one or two inverses at a time.
  const std::span<const double> poles(tables::kFinePoles);
  const size_t group = use_paired_threads(gram.matrix) ? 2 : 1;
  at::Tensor q;
  for (size_t done = 0; done < poles.size(); done += group) {
    std::vector<std::optional<ShiftedInverse>> results(group);
    parallel_for_with_tls(0, static_cast<int64_t>(group), 1, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) results[k] = gram.inverse(poles[done + k]);
    });
    std::vector<at::Tensor> matrices;
    std::vector<double> scales;
    for (size_t k = 0; k < group; ++k) {
      const auto& inverse = results[k];
      if (!inverse) return std::nullopt;
      matrices.push_back(inverse->lower);
      scales.push_back(root * tables::kFineBeta[done + k]);
    }
    if (q.defined()) {
      matrices.push_back(q);
      scales.push_back(1);
    }
    q = combine_lower(matrices, scales);
  }
  add_to_diagonal_(q, tables::kFineAlpha / root);
  mirror_lower_(q);
  return FineFilterResult{gemm(q, a), tables::kFineCutoff * root, tables::kFinePassbandMin};
}

}  // namespace tensorion
