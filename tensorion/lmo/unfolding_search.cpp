#include "tensorion/lmo/unfolding_search.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "tensorion/core/scratch_arena.h"
#include "tensorion/core/strided.h"
#include "tensorion/lmo.h"

namespace tensorion {
namespace {

// Tightens the upper bounds of candidates whose Gram matrix is a partial trace of the contender's. Candidates
// that are already ruled out by the threshold are skipped.
void bound_parts(Contender& contender, double threshold, std::span<Candidate> candidates) {
  const auto& unfolding = contender.unfolding;
  const bool by_rows = contender.transposed != (unfolding.rows() <= unfolding.cols());
  const auto modes = by_rows ? unfolding.row_modes() : unfolding.col_modes();
  std::vector<int64_t> sizes;
  for (const int64_t mode : modes) sizes.push_back(unfolding.shape()[mode]);
  const auto within = [&](const Modes& part) {
    return std::all_of(part.begin(), part.end(), [&](int64_t mode) {
      return unfolding.shape()[mode] == 1 || std::find(modes.begin(), modes.end(), mode) != modes.end();
    });
  };
  for (auto& candidate : candidates) {
    if (candidate.heuristic_upper < threshold || candidate.traced) continue;
    auto part = candidate.unfolding.row_modes();
    if (!within(part)) part = candidate.unfolding.col_modes();
    if (!within(part)) continue;
    std::vector<bool> kept;
    for (const int64_t mode : modes) kept.push_back(std::find(part.begin(), part.end(), mode) != part.end());
    auto estimator = contender.estimator.partial_trace(sizes, kept);
    if (estimator.bounds().upper >= threshold) estimator.refine();
    candidate.upper = std::min(candidate.upper, estimator.bounds().upper);
    candidate.heuristic_upper = std::min(candidate.heuristic_upper, estimator.heuristic_bounds().upper);
    candidate.traced = true;
  }
}

// The number of contenders whose matrices stay in memory. The matrices of the others are recomputed on
// demand.
constexpr size_t kMaxResident = 2;

// With Comparison::kEstimates, the search ends when a wrong choice can lose at most this share of the nuclear
// norm. The polar factor may lose 30 times as much.
constexpr double kNegligibleLoss = 1e-3;

// Estimates that differ by less than this, relative to their size, count as equal: rounding can decide
// between them.
constexpr double kEstimateRounding = 1e-5;

// The middle of the bounds of a nuclear norm, and half their distance.
struct Estimate {
  double value;
  double error;

  explicit Estimate(const Contender& contender) {
    const auto bounds = contender.estimator.heuristic_bounds();
    value = (bounds.lower + bounds.upper) / 2;
    error = (bounds.upper - bounds.lower) / 2;
  }
};

// Returns how much the difference between the estimates of `a` and `b` may be off.
//
// An estimate is a sum over the m singular values of a function that approximates the identity. If both
// contenders have the same number of singular values and the same function, its errors have similar signs in
// both sums, or random ones, and cancel in the difference. Random errors leave about 1 / sqrt(m) of the error
// of one estimate. With two determinants and m = 192 to 1536, at most 0.27 / sqrt(m) was left in momenta of a
// ResNet in training and in Gaussian ones, so half of it is allowed for. With more determinants it was up to
// 1 / sqrt(m), but at most 2.4e-4 of the norm. Small matrices vary more.
double uncertainty_of_difference(const Contender& a, const Contender& b) {
  const Estimate first(a), second(b);
  const auto side = [](const Contender& c) { return std::min(c.unfolding.rows(), c.unfolding.cols()); };
  if (side(a) != side(b) || a.estimator.refinements() != b.estimator.refinements()) {
    return first.error + second.error;
  }
  constexpr int64_t kLargeSide = 192;
  const double share = side(a) >= kLargeSide ? 0.5 : 1;
  return share * std::max(first.error, second.error) / std::sqrt(static_cast<double>(side(a)));
}

bool is_clearly_smaller(const Contender& a, const Contender& b) {
  return Estimate(a).value + uncertainty_of_difference(a, b) < Estimate(b).value;
}

class Search {
 public:
  Search(const at::Tensor& m, std::vector<Candidate> candidates, Comparison comparison)
      : m_(m), candidates_(std::move(candidates)), comparison_(comparison) {}

  Selection run() {
    for (size_t i = 0; i < candidates_.size(); ++i) admit(i);
    drop_losers();
    while (!is_decided()) {
      auto* const contender_to_refine = least_refined();
      if (!contender_to_refine) break;
      auto& estimator = contender_to_refine->estimator;
      // The eigenvalues need as much memory as the matrices of a second contender.
      const bool needs_eigenvalues = estimator.needs_eigenvalues();
      make_resident(*contender_to_refine, needs_eigenvalues ? 1 : kMaxResident);
      if (needs_eigenvalues) estimator.restore(matrix_of(*contender_to_refine));
      estimator.refine();
      drop_losers();
    }
    Contender& best = choose();
    for (const auto& contender : contenders_) {
      if (&contender != &best) others_ = std::max(others_, contender.estimator.bounds().upper);
    }
    auto winner = std::move(best);
    contenders_.clear();
    if (!winner.estimator.has_input()) winner.estimator.restore(matrix_of(winner));
    return {std::move(winner), std::max(others_, threshold_), solved_};
  }

 private:
  at::Tensor matrix_of(const Unfolding& unfolding, bool transposed) const {
    const auto matrix = gather(unfolding, m_);
    return transposed ? matrix.mT() : matrix;
  }
  at::Tensor matrix_of(const Contender& contender) const {
    return matrix_of(contender.unfolding, contender.transposed);
  }

  // Makes candidate i a contender unless it is ruled out.
  void admit(size_t i) {
    const auto& candidate = candidates_[i];
    if (candidate.heuristic_upper < threshold_) {
      others_ = std::max(others_, candidate.upper);
      return;
    }
    const auto& unfolding = candidate.unfolding;
    // Use the rows of the first square unfolding and the columns of later ones, so that as many other Gram
    // matrices as possible are partial traces of one of these.
    const bool transposed = i > 0 && unfolding.rows() == unfolding.cols();
    release_all_but(kMaxResident - 1);
    NuclearNormEstimator estimator(matrix_of(unfolding, transposed));
    ++solved_;
    if (estimator.bounds().upper < threshold_) return;
    estimator.release_input();
    estimator.refine();
    threshold_ = std::max(threshold_, estimator.heuristic_bounds().lower);
    contenders_.push_back({unfolding, transposed, ++clock_, std::move(estimator)});
    bound_parts(contenders_.back(), threshold_, std::span(candidates_).subspan(i + 1));
    drop_losers();
  }

  // Raises the threshold, and removes the contenders that it or an estimate rules out.
  void drop_losers() {
    for (const auto& contender : contenders_)
      threshold_ = std::max(threshold_, contender.estimator.heuristic_bounds().lower);
    const auto is_loser = [&](const Contender& contender) {
      if (contender.estimator.heuristic_bounds().upper < threshold_) return true;
      return comparison_ == Comparison::kEstimates &&
             std::any_of(contenders_.begin(), contenders_.end(),
                         [&](const Contender& other) { return is_clearly_smaller(contender, other); });
    };
    std::vector<bool> is_lost;
    for (const auto& contender : contenders_) is_lost.push_back(is_loser(contender));
    std::vector<Contender> remaining;
    for (size_t i = 0; i < contenders_.size(); ++i) {
      if (is_lost[i]) {
        others_ = std::max(others_, contenders_[i].estimator.bounds().upper);
      } else {
        remaining.push_back(std::move(contenders_[i]));
      }
    }
    contenders_ = std::move(remaining);
  }

  Contender& largest_estimate() {
    return *std::max_element(contenders_.begin(), contenders_.end(), [](const auto& a, const auto& b) {
      return Estimate(a).value < Estimate(b).value;
    });
  }

  // Returns true if the largest estimate is a good choice: no other contender can be better by more than a
  // negligible amount.
  bool is_decided() {
    if (comparison_ == Comparison::kBounds) return contenders_.size() == 1;
    const auto& best = largest_estimate();
    return std::all_of(contenders_.begin(), contenders_.end(), [&](const Contender& contender) {
      return &contender == &best ||
             uncertainty_of_difference(contender, best) <= kNegligibleLoss * Estimate(best).value;
    });
  }

  // Returns the contender with the largest estimate. If several are equal up to rounding, the first in the
  // order of `unfoldings` wins.
  Contender& choose() {
    const double least = (1 - kEstimateRounding) * Estimate(largest_estimate()).value;
    Contender* chosen = nullptr;
    for (auto& contender : contenders_) {
      if (Estimate(contender).value < least) continue;
      const auto order = [](const Contender& c) {
        return std::pair(c.unfolding.modes().size(), c.unfolding.modes());
      };
      if (!chosen || order(contender) < order(*chosen)) chosen = &contender;
    }
    return *chosen;
  }

  // Returns the contender with the fewest refinements among those that can be refined, or null.
  Contender* least_refined() {
    Contender* least = nullptr;
    for (auto& contender : contenders_) {
      if (!contender.estimator.can_refine()) continue;
      if (!least || contender.estimator.refinements() < least->estimator.refinements()) least = &contender;
    }
    return least;
  }

  // Makes sure that the matrices of this contender, and of at most `count` contenders in total, are in
  // memory.
  void make_resident(Contender& contender, size_t count) {
    contender.last_use = ++clock_;
    const bool was_released = contender.estimator.is_released();
    release_all_but(was_released ? count - 1 : count);
    if (!was_released) return;
    contender.estimator.restore(matrix_of(contender));
    contender.estimator.release_input();
  }

  // Frees the matrices of all but the `count` most recently used contenders.
  void release_all_but(size_t count) {
    std::vector<Contender*> resident;
    for (auto& contender : contenders_) {
      if (!contender.estimator.is_released()) resident.push_back(&contender);
    }
    std::sort(resident.begin(), resident.end(),
              [](const Contender* a, const Contender* b) { return a->last_use > b->last_use; });
    for (size_t i = count; i < resident.size(); ++i) resident[i]->estimator.release();
  }

  at::Tensor m_;
  std::vector<Candidate> candidates_;
  Comparison comparison_;
  std::vector<Contender> contenders_;
  double threshold_ = 0;  // largest heuristic lower bound of a nuclear norm
  double others_ = 0;     // upper bound of the nuclear norms that were ruled out
  int64_t solved_ = 0;
  int64_t clock_ = 0;  // logical time for Contender::last_use
};

}  // namespace

std::vector<Candidate> candidates(const at::Tensor& m, const Family& family) {
  const double norm = std::sqrt(inner_product(m, m)) * (1 + 1e-6);
  std::vector<Candidate> all;
  for (const auto& modes : unfoldings_of(m.sizes(), family, "lmo")) {
    const Unfolding unfolding(m.sizes(), modes);
    const auto side = static_cast<double>(std::min(unfolding.rows(), unfolding.cols()));
    all.push_back({unfolding, std::sqrt(side) * norm, std::sqrt(side) * norm});
  }
  // A vector has only one unfolding.
  if (all.empty()) all.push_back({UnfoldingStrategy("balanced").choose(m.sizes()), norm, norm});
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.upper > b.upper; });
  return all;
}

at::Tensor gather(const Unfolding& unfolding, const at::Tensor& x) {
  if (unfolding.is_view(x)) return unfolding.unfold(x);
  auto matrix = scratch({unfolding.rows(), unfolding.cols()}, x.options());
  copy_strided(x, unfolding.fold(matrix));
  return matrix;
}

Selection select_unfolding(const at::Tensor& m, Comparison comparison, const Family& family) {
  auto all = candidates(m, family);
  const auto first = all.front().unfolding;
  if (all.front().upper != 0) return Search(m, std::move(all), comparison).run();
  return {{first, false, 0, NuclearNormEstimator(gather(first, m))}};
}

}  // namespace tensorion
