#include "tensorion/zolotarev.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "tensorion/parallel.h"
#include "tensorion/rows.h"
#include "tensorion/scratch.h"
#include "tensorion/symmetric.h"
#include "tensorion/zolotarev_tables.h"

namespace tensorion {
namespace {

// What is known for a number of poles. A row ends with its sensitivity to rounding.
struct Level {
  double resolution;
  std::span<const double> floors;
  Rows filters;  // alpha, gamma, beta_j
  Rows upper;    // the certificates
  Rows lower;
};
constexpr size_t kSensitivity = 4;

Level level(size_t poles) {
  namespace tables = zolotarev;
  switch (poles) {
    case 2:
      return {tables::kTwoResolution, tables::kTwoFloors, tables::kTwoFilters, tables::kTwoUpper,
              tables::kTwoLower};
    case 3:
      return {tables::kThreeResolution, tables::kThreeFloors, tables::kThreeFilters, tables::kThreeUpper,
              tables::kThreeLower};
    case 4:
      return {tables::kFourResolution, tables::kFourFloors, tables::kFourFilters, tables::kFourUpper,
              tables::kFourLower};
    default:
      return {tables::kFiveResolution, tables::kFiveFloors, tables::kFiveFilters, tables::kFiveUpper,
              tables::kFiveLower};
  }
}

// A matrix that becomes an inverse: the lower triangle of S or, where its log-determinant is known, of the
// Cholesky factor of S + shift I.
struct Work {
  at::Tensor w;
  std::optional<double> log_det;  // of (S + shift I) / shift

  // Replaces w by (S + shift I)^-1. Returns what that tells of the spectrum of S / lambda: the traces of
  // c / (s + c) and its square, and the sum of log(1 + s / c). Nothing where the factorization fails.
  std::vector<double> invert(double shift) {
    if (!log_det) {
      w.diagonal().add_(shift);
      log_det = factor_positive_(w);
      if (!log_det) return {};
      *log_det -= w.size(0) * std::log(shift);
    }
    invert_factored_(w);
    const auto inverse = lower_moments(w);
    return {shift * inverse.trace, shift * shift * inverse.squares, *log_det};
  }
};

}  // namespace

ZolotarevPass::ZolotarevPass(const GramMatrix& gram)
    : s_(gram.matrix),
      lambda_(gram.lambda),
      moments_{static_cast<double>(s_.size(0)), gram.trace / lambda_, gram.squares / (lambda_ * lambda_)} {}

bool ZolotarevPass::add_inverses(GramMatrix& gram, std::span<const double> poles, bool in_place) {
  const auto count = static_cast<int64_t>(poles.size());
  std::vector<Work> group;
  for (int64_t k = 0; k < count; ++k) {
    if (const auto kept = gram.factors.extract(poles[k])) {
      group.push_back({kept.mapped().lower, kept.mapped().log_det});
    } else if (in_place && k == count - 1) {
      // The inverse takes the lower triangle of S, which moves to the upper one.
      group.push_back({s_, std::nullopt});
      mirror_lower_(s_);
      diagonal_ = s_.diagonal().clone();
      s_ = s_.mT();
    } else {
      group.push_back({copy_lower(s_), std::nullopt});
      if (diagonal_.defined()) group[k].w.diagonal().copy_(diagonal_);
    }
  }
  std::vector<std::vector<double>> told(count);
  const auto invert = [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) told[k] = group[k].invert(lambda_ * poles[k]);
  };
  parallel_calls(0, count, side_by_side(s_) ? 1 : count, invert);
  for (int64_t k = 0; k < count; ++k) {
    if (told[k].empty()) return false;
    moments_.insert(moments_.end(), told[k].begin(), told[k].end());
    inverses_.push_back(group[k].w);
  }
  return true;
}

std::optional<ZolotarevPass> ZolotarevPass::solve(GramMatrix& gram) {
  if (!(gram.lambda > 0) || !std::isfinite(gram.lambda)) return std::nullopt;
  ZolotarevPass pass(gram);
  const std::span<const double> poles(zolotarev::kPoles);
  constexpr size_t kFirst = 2;
  if (!pass.add_inverses(gram, poles.first(kFirst), false)) return std::nullopt;
  pass.certify(gram, kFirst);
  return pass;
}

bool ZolotarevPass::refine(GramMatrix& gram) {
  const std::span<const double> poles(zolotarev::kPoles);
  const size_t done = inverses_.size();
  if (fine_ || q_.defined() || done == poles.size()) return false;
  if (!gram.inverse_growth(poles[done], gram.spectral_rounding, least_)) return false;
  // Where two poles do so little, three will not do: the third and the fourth side by side.
  const bool both = done == 2 && side_by_side(s_) && value_ < 0.8 * bounds_.upper &&
                    gram.inverse_growth(poles[done + 1], gram.spectral_rounding, least_);
  const size_t more = both ? 2 : 1;
  const bool in_place = done + more == 4 && !diagonal_.defined();
  if (!add_inverses(gram, poles.subspan(done, more), in_place) && inverses_.size() == done) return false;
  for (size_t count = done + 1; count <= inverses_.size(); ++count) certify(gram, count);
  return true;
}

std::optional<ZolotarevPass> ZolotarevPass::solve_finely(GramMatrix gram) {
  if (!(gram.lambda > 0) || !std::isfinite(gram.lambda)) return std::nullopt;
  ZolotarevPass pass(gram);
  pass.fine_ = true;
  pass.floor_ = zolotarev::kFineFloor;
  pass.resolution_ = zolotarev::kFineResolution * std::sqrt(pass.lambda_);
  const std::span<const double> poles(zolotarev::kFinePoles);
  for (size_t done = 0; done < poles.size();) {
    const size_t count = side_by_side(pass.s_) ? 2 : 1;
    if (!pass.add_inverses(gram, poles.subspan(done, count), false)) return std::nullopt;
    std::vector<double> scales;
    for (size_t k = done; k < done + count; ++k) {
      scales.push_back(std::sqrt(pass.lambda_) * zolotarev::kFineFilter[2 + k]);
    }
    // The inverses are too many to be kept.
    if (pass.q_.defined()) {
      pass.inverses_.push_back(pass.q_);
      scales.push_back(1);
    }
    pass.q_ = combine_lower(pass.inverses_, scales);
    pass.inverses_.clear();
    done += count;
  }
  pass.q_.diagonal().add_(zolotarev::kFineFilter[0] / std::sqrt(pass.lambda_));
  return pass;
}

void ZolotarevPass::certify(const GramMatrix& gram, size_t poles) {
  const auto known = level(poles);
  const double m = moments_[0], root = std::sqrt(lambda_);
  // How far rounding may move a trace of g(S): see scripts/make_zolotarev_tables.py.
  const auto smallest = std::min_element(zolotarev::kPoles, zolotarev::kPoles + poles) - zolotarev::kPoles;
  const double c = zolotarev::kPoles[smallest];
  const double trace = moments_[3 + 3 * smallest], squares = moments_[4 + 3 * smallest];
  least_ = std::max(least_, c / trace - c);  // no term of the trace exceeds it
  const auto growth = gram.inverse_growth(c, gram.spectral_rounding, least_);
  if (!growth) return;
  // The moments are those of the computed matrix; on the way to the true one they grow by so much at most.
  const double u = *growth * trace, u2 = *growth * *growth * squares;
  const double far =
      std::sqrt(std::max(0.0, m - 2 * trace + squares)) + *growth * *growth * gram.rounding / (c * lambda_);
  const auto moved = [&](std::span<const double> row) {
    const auto k = row.last(kSensitivity);
    return gram.rounding / lambda_ * std::min(std::sqrt(k[0] * u + k[1] * u2), k[2] + k[3] * far);
  };
  const auto combined = [&](std::span<const double> row) {
    return std::inner_product(row.begin(), row.end() - kSensitivity, moments_.begin(), 0.0);
  };
  for (size_t i = 0; i < known.upper.count(); ++i) {
    const auto below = known.lower[i], above = known.upper[i];
    bounds_.lower = std::max(bounds_.lower, root * (combined(below) - moved(below)));
    const double upper = root * (combined(above) + moved(above));
    if (upper >= bounds_.upper) continue;
    bounds_.upper = upper;
    upper_rounding_ = root * moved(above);
  }
  if (gram.nuclear_upper < bounds_.upper) {
    bounds_.upper = gram.nuclear_upper;
    upper_rounding_ = gram.upper_rounding;
  }
  for (size_t i = 0; i < known.filters.count(); ++i) {
    const auto row = known.filters[i];
    double value = row[0] * moments_[1] + row[1] * moments_[2];
    for (size_t j = 0; j < poles; ++j)
      value += row[2 + j] * (m - moments_[3 + 3 * j]);  // tr of S (S + c I)^-1
    const double rounding = moved(row);
    if (root * (value - rounding) <= value_) continue;  // than that of fewer poles, too
    choose(poles, i);
    value_ = root * (value - rounding);
    value_rounding_ = root * rounding;
  }
}

void ZolotarevPass::choose(size_t poles, size_t filter) {
  const auto known = level(poles);
  weights_ = known.filters[filter].first(2 + poles);
  floor_ = known.floors[filter];
  resolution_ = known.resolution * std::sqrt(lambda_);
}

void ZolotarevPass::choose_floor() {
  const auto floors = level(inverses_.size()).floors;
  choose(inverses_.size(), std::max_element(floors.begin(), floors.end()) - floors.begin());
}

at::Tensor ZolotarevPass::apply(const at::Tensor& a) {
  if (!q_.defined()) {
    inverses_.resize(weights_.size() - 2);
    std::vector<double> scales;
    for (const double beta : weights_.subspan(2)) scales.push_back(std::sqrt(lambda_) * beta);
    const double gamma = weights_[1] / (lambda_ * std::sqrt(lambda_));
    auto matrices = std::move(inverses_);
    if (!diagonal_.defined()) {
      matrices.push_back(s_);
      scales.push_back(gamma);
    }
    q_ = combine_lower(matrices, scales);
    if (diagonal_.defined()) {
      // The upper triangle of q_ means nothing; on the diagonal of s_ there is that of an inverse.
      const auto diagonal = q_.diagonal().add(diagonal_, gamma);
      q_.add_(s_, gamma);
      q_.diagonal().copy_(diagonal);
    }
    s_.reset();
    q_.diagonal().add_(weights_[0] / std::sqrt(lambda_));
  }
  mirror_lower_(q_);
  // Laid out as a is.
  auto x =
      a.is_contiguous() ? scratch(a.sizes(), a.options()) : scratch({a.size(1), a.size(0)}, a.options()).mT();
  at::mm_out(x, q_, a);
  q_.reset();
  return x;
}

}  // namespace tensorion
