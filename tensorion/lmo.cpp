#include "tensorion/lmo.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>
#include <sstream>

#include "tensorion/elementwise.h"
#include "tensorion/precision.h"
#include "tensorion/scratch.h"

namespace tensorion {
namespace {

// The one unfolding of a shape of effective order 0 or 1: a column.
Unfolding column(at::IntArrayRef shape) {
  TORCH_CHECK_VALUE(!shape.empty(), "[tensorion.lmo] expected a tensor with at least one mode, got a scalar");
  for (int64_t mode = 0; mode < static_cast<int64_t>(shape.size()); ++mode) {
    if (shape[mode] != 1) return {shape, {mode}};
  }
  return {shape, {0}};
}

struct Candidate {
  Unfolding unfolding;
  double upper;         // of the nuclear norm
  double likely;        // the same but for what rounding hardly does
  bool traced = false;  // whether its Gram matrix has been looked at already, as a part of another
};

// m times 2^-exponent, where squares of entries would leave the range of a double.
struct Moderate {
  at::Tensor m;
  int exponent = 0;
};

Moderate moderate(const at::Tensor& m) {
  const double norm = std::sqrt(inner_product(m, m));
  if (m.numel() == 0 || (norm > 1e-140 && norm < 1e140)) return {m};
  const double largest = m.abs().max().item<double>();
  if (largest == 0 || !std::isfinite(largest)) return {m};
  const int exponent = std::ilogb(largest);
  // In two factors, since one may leave the range of the dtype.
  return {m.to(at::kDouble) * std::ldexp(1.0, -exponent / 2) * std::ldexp(1.0, -exponent + exponent / 2),
          exponent};
}

// All unfoldings with the bound ||A||_* <= sqrt(min(m, n)) ||A||_F, by decreasing bound.
std::vector<Candidate> candidates(const at::Tensor& m) {
  const double norm = std::sqrt(inner_product(m, m)) * (1 + 1e-6);
  std::vector<Candidate> all;
  for (const auto& modes : unfoldings(m.sizes())) {
    const Unfolding unfolding(m.sizes(), modes);
    const auto side = static_cast<double>(std::min(unfolding.rows(), unfolding.cols()));
    all.push_back({unfolding, std::sqrt(side) * norm, std::sqrt(side) * norm});
  }
  // A vector's only unfolding is itself.
  if (all.empty()) all.push_back({column(m.sizes()), norm, norm});
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.upper > b.upper; });
  return all;
}

// The unfolding of x by a copy in scratch memory, unless it is a view; modes in the order in which that is
// done fastest, which no norm notices.
at::Tensor gather(const Unfolding& unfolding, const at::Tensor& x) {
  if (unfolding.is_view(x)) return unfolding.unfold(x);
  auto matrix = scratch({unfolding.rows(), unfolding.cols()}, x.options());
  copy_entries(x, unfolding.fold(matrix));
  return matrix;
}

// An unfolding that bounds could not rule out.
struct Contender {
  Modes modes;
  Unfolding unfolding;
  bool transposed;   // whether the estimate is of the transpose
  int64_t last_use;  // the larger, the later
  NuclearEstimate estimate;

  at::Tensor fold(const at::Tensor& x) const { return unfolding.fold(transposed ? x.mT() : x); }
};

// Closer upper bounds of candidates above the bar whose Gram matrix is a partial trace of the contender's.
void bound_parts(const Contender& contender, double bar, std::span<Candidate> candidates) {
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
    if (candidate.likely < bar || candidate.traced) continue;
    auto part = candidate.unfolding.row_modes();
    if (!within(part)) part = candidate.unfolding.col_modes();
    if (!within(part)) continue;
    std::vector<bool> kept;
    for (const int64_t mode : modes) kept.push_back(std::find(part.begin(), part.end(), mode) != part.end());
    auto estimate = contender.estimate.partial_trace(sizes, kept);
    if (estimate.bounds().upper >= bar) estimate.refine();
    candidate.upper = std::min(candidate.upper, estimate.bounds().upper);
    candidate.likely = std::min(candidate.likely, estimate.likely().upper);
    candidate.traced = true;
  }
}

struct Selection {
  Contender winner;
  double others = 0;  // a certified upper bound of all other nuclear norms
  int64_t solved = 0;
};

// So many contenders keep their matrices; those of the others are computed again when they are needed.
constexpr size_t kResident = 2;

// The search for the unfolding of m with the largest nuclear norm.
class Search {
 public:
  explicit Search(const at::Tensor& m) : m_(m), candidates_(candidates(m)) {}

  Selection run() {
    for (size_t i = 0; i < candidates_.size(); ++i) admit(i);
    drop_losers();
    while (contenders_.size() > 1) {
      auto* const roughest = least_refined();
      if (!roughest) break;
      // Eigenvalues take as much memory as another contender's matrices do.
      make_resident(*roughest, roughest->estimate.needs_eigenvalues() ? 1 : kResident);
      roughest->estimate.refine();
      drop_losers();
    }
    // Of equals the first in the order of enumeration.
    const auto first =
        std::min_element(contenders_.begin(), contenders_.end(), [](const auto& a, const auto& b) {
          return a.modes.size() != b.modes.size() ? a.modes.size() < b.modes.size() : a.modes < b.modes;
        });
    for (const auto& contender : contenders_) {
      if (&contender != &*first) others_ = std::max(others_, contender.estimate.bounds().upper);
    }
    auto winner = std::move(*first);
    contenders_.clear();
    if (winner.estimate.is_released()) winner.estimate.restore(matrix_of(winner));
    return {std::move(winner), std::max(others_, bar_), solved_};
  }

 private:
  at::Tensor matrix_of(const Contender& contender) const {
    const auto matrix = gather(contender.unfolding, m_);
    return contender.transposed ? matrix.mT() : matrix;
  }

  // Lets a candidate that the bar does not rule out contend.
  void admit(size_t i) {
    const auto& candidate = candidates_[i];
    if (candidate.likely < bar_) {
      others_ = std::max(others_, candidate.upper);
      return;
    }
    const auto unfolding = candidate.unfolding.reordered();
    // Of the first square unfolding the rows, of others the columns, so that many are parts of either.
    const bool transposed = i > 0 && unfolding.rows() == unfolding.cols();
    release_all_but(kResident - 1);
    const auto matrix = gather(unfolding, m_);
    NuclearEstimate estimate(transposed ? matrix.mT() : matrix);
    ++solved_;
    if (estimate.bounds().upper < bar_) return;
    estimate.refine();
    bar_ = std::max(bar_, estimate.likely().lower);
    contenders_.push_back({candidate.unfolding.modes(), unfolding, transposed, ++uses_, std::move(estimate)});
    bound_parts(contenders_.back(), bar_, std::span(candidates_).subspan(i + 1));
    drop_losers();
  }

  void drop_losers() {
    for (const auto& contender : contenders_) bar_ = std::max(bar_, contender.estimate.likely().lower);
    std::erase_if(contenders_, [&](const Contender& contender) {
      if (contender.estimate.likely().upper >= bar_) return false;
      others_ = std::max(others_, contender.estimate.bounds().upper);
      return true;
    });
  }

  // Of those that can be refined; null if there is none.
  Contender* least_refined() {
    Contender* found = nullptr;
    for (auto& contender : contenders_) {
      if (!contender.estimate.can_refine()) continue;
      if (!found || contender.estimate.refinements() < found->estimate.refinements()) found = &contender;
    }
    return found;
  }

  // `count`: how many may be resident then, this one included.
  void make_resident(Contender& contender, size_t count) {
    contender.last_use = ++uses_;
    const bool was_released = contender.estimate.is_released();
    release_all_but(was_released ? count - 1 : count);
    if (was_released) contender.estimate.restore(matrix_of(contender));
  }

  // Keeps the matrices of those that were used last.
  void release_all_but(size_t count) {
    std::vector<Contender*> resident;
    for (auto& contender : contenders_) {
      if (!contender.estimate.is_released()) resident.push_back(&contender);
    }
    std::sort(resident.begin(), resident.end(),
              [](const Contender* a, const Contender* b) { return a->last_use > b->last_use; });
    for (size_t i = count; i < resident.size(); ++i) resident[i]->estimate.release();
  }

  at::Tensor m_;
  std::vector<Candidate> candidates_;
  std::vector<Contender> contenders_;
  double bar_ = 0;     // the largest lower bound of a nuclear norm
  double others_ = 0;  // a certified upper bound of the nuclear norms that lost
  int64_t solved_ = 0;
  int64_t uses_ = 0;
};

// The unfolding with the largest nuclear norm; of a tensor that is zero, the first.
Selection select(const at::Tensor& m) {
  if (m.any().item<bool>()) return Search(m).run();
  const auto all = unfoldings(m.sizes());
  const auto first = all.empty() ? column(m.sizes()) : Unfolding(m.sizes(), all[0]);
  return {{first.modes(), first, false, 0, NuclearEstimate(gather(first, m))}};
}

bool is_halley(const PolarOptions& polar, const at::Tensor& m) {
  return polar.method == "halley" || (polar.method == "auto" && m.is_cpu());
}

}  // namespace

UnfoldingStrategy::UnfoldingStrategy(const std::string& name) : online_(name == "online") {
  TORCH_CHECK_VALUE(online_ || name == "balanced",
                    "[tensorion.lmo] unfolding must be 'balanced', 'online' or a set of modes, got '", name,
                    "'");
}

Unfolding UnfoldingStrategy::choose(at::IntArrayRef shape) const {
  TORCH_INTERNAL_ASSERT(!online_);
  if (modes_) return {shape, *modes_};
  if (effective_order(shape) < 2) return column(shape);
  return {shape, balanced_unfolding(shape)};
}

std::string UnfoldingStrategy::str() const {
  if (online_) return "online";
  if (!modes_) return "balanced";
  std::ostringstream out;
  out << "(";
  for (size_t i = 0; i < modes_->size(); ++i) out << (i ? ", " : "") << (*modes_)[i];
  out << (modes_->size() == 1 ? ",)" : ")");
  return out.str();
}

UnfoldingStrategy UnfoldingStrategy::parse(const std::string& text) {
  if (text.empty() || text.front() != '(') return text;
  const auto expect = [&](bool holds) {
    TORCH_CHECK_VALUE(holds, "[tensorion.lmo] expected modes such as '(0, 2)', got '", text, "'");
  };
  size_t place = 1;
  const auto skip_spaces = [&] { place = std::min(text.find_first_not_of(" \t\n", place), text.size()); };
  Modes modes;
  for (skip_spaces(); place < text.size() && text[place] != ')'; skip_spaces()) {
    expect(text[place] >= '0' && text[place] <= '9');
    const auto [stop, error] =
        std::from_chars(text.data() + place, text.data() + text.size(), modes.emplace_back());
    expect(error == std::errc());
    place = stop - text.data();
    skip_spaces();
    expect(place < text.size() && (text[place] == ',' || text[place] == ')'));
    if (text[place] == ',') ++place;
  }
  expect(place + 1 == text.size());
  return modes;
}

LmoResult lmo(const at::Tensor& m, const UnfoldingStrategy& unfolding, const PolarOptions& polar) {
  const NoAutocastGuard no_autocast;
  TORCH_CHECK_TYPE(at::isFloatingType(m.scalar_type()) && !at::isFloat8Type(m.scalar_type()),
                   "[tensorion.lmo] expected a real floating-point tensor, got ", m.scalar_type());
  TORCH_CHECK_VALUE(m.layout() == at::kStrided, "[tensorion.lmo] expected a dense tensor, got ", m.layout());
  polar.check();
  const auto [input, exponent] = moderate(m.detach());
  LmoResult result;
  double upper = 0;
  if (unfolding.is_online() && m.numel() > 0) {
    auto [winner, others, solved] = select(input);
    const auto factor =
        is_halley(polar, m) ? winner.estimate.factor() : certified_polar(winner.estimate.matrix(), polar);
    result.x = winner.fold(factor.x).clone();
    result.modes = winner.modes;
    result.solved = solved;
    result.value = factor.value;
    // Bounds of the winner from both ways hold; that by eigenvalues is the closer one.
    upper = std::max({factor.value, std::min(winner.estimate.bounds().upper, factor.nuclear.upper), others});
  } else {
    const auto chosen =
        unfolding.is_online() ? UnfoldingStrategy("balanced").choose(m.sizes()) : unfolding.choose(m.sizes());
    const auto factor = certified_polar(chosen.unfold(input), polar);
    result.x = chosen.fold(factor.x).clone();
    result.modes = chosen.modes();
    result.solved = 1;
    result.value = factor.value;
    // The optimum is over all unfoldings: those that were not solved count with their cheap bound.
    upper = factor.nuclear.upper;
    if (m.numel() > 0) {
      for (const auto& other : candidates(input)) {
        if (other.unfolding.modes() != chosen.canonical()) upper = std::max(upper, other.upper);
      }
    }
  }
  result.x = result.x.to(m.scalar_type());
  // A lower bound may be cut off at the largest number, an upper one not.
  result.value = std::min(std::ldexp(result.value, exponent), std::numeric_limits<double>::max());
  result.upper = std::ldexp(upper, exponent);
  return result;
}

Direction lmo_direction(const at::Tensor& m, const UnfoldingStrategy& unfolding, const PolarOptions& polar) {
  const NoAutocastGuard no_autocast;
  if (unfolding.is_online() && m.numel() > 0) {
    auto winner = select(moderate(m).m).winner;
    const auto x =
        is_halley(polar, m) ? winner.estimate.factor().x : polar_scratch(winner.estimate.matrix(), polar);
    return {winner.fold(x), winner.unfolding};
  }
  auto chosen =
      unfolding.is_online() ? UnfoldingStrategy("balanced").choose(m.sizes()) : unfolding.choose(m.sizes());
  if (!chosen.is_view(m)) chosen = chosen.reordered();
  return {chosen.fold(polar_scratch(gather(chosen, m), polar)), chosen};
}

}  // namespace tensorion
