#include "tensorion/lmo.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <sstream>

#include "tensorion/elementwise.h"
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

double frobenius_norm(const at::Tensor& m) {
  const double norm = std::sqrt(inner_product(m, m));
  if (norm > 1e-140 && norm < 1e140) return norm;
  // Squares of such entries leave the range of a double.
  const double largest = m.abs().max().item<double>();
  if (largest == 0 || !std::isfinite(largest)) return largest;
  return largest * at::linalg_vector_norm(m.to(at::kDouble) / largest).item<double>();
}

// All unfoldings with the bound ||A||_* <= sqrt(min(m, n)) ||A||_F, by decreasing bound.
std::vector<Candidate> candidates(const at::Tensor& m) {
  const double norm = frobenius_norm(m) * (1 + 1e-6);
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
  bool transposed;  // whether the estimate is of the transpose
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

// The unfolding with the largest nuclear norm.
Selection select(const at::Tensor& m) {
  std::vector<Contender> contenders;
  double bar = 0, others = 0;
  int64_t solved = 0;
  const auto undecided = [&] {
    for (const auto& contender : contenders) bar = std::max(bar, contender.estimate.likely().lower);
    std::erase_if(contenders, [&](const Contender& contender) {
      if (contender.estimate.likely().upper >= bar) return false;
      others = std::max(others, contender.estimate.bounds().upper);
      return true;
    });
    return contenders.size() > 1;
  };
  auto all = candidates(m);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].likely < bar) {
      others = std::max(others, all[i].upper);
      continue;
    }
    const auto unfolding = all[i].unfolding.reordered();
    // Of the first square unfolding the rows, of others the columns, so that many are parts of either.
    const bool transposed = i > 0 && unfolding.rows() == unfolding.cols();
    const auto matrix = gather(unfolding, m);
    NuclearEstimate estimate(transposed ? matrix.mT() : matrix);
    ++solved;
    if (estimate.bounds().upper < bar) continue;
    estimate.refine();
    bar = std::max(bar, estimate.likely().lower);
    contenders.push_back({all[i].unfolding.modes(), unfolding, transposed, std::move(estimate)});
    bound_parts(contenders.back(), bar, std::span(all).subspan(i + 1));
    undecided();
  }
  while (undecided()) {
    const auto roughest = std::min_element(
        contenders.begin(), contenders.end(),
        [](const auto& a, const auto& b) { return a.estimate.refinements() < b.estimate.refinements(); });
    if (!roughest->estimate.refine()) break;
  }
  // Of equals the first in the order of enumeration.
  const auto first = std::min_element(contenders.begin(), contenders.end(), [](const auto& a, const auto& b) {
    return a.modes.size() != b.modes.size() ? a.modes.size() < b.modes.size() : a.modes < b.modes;
  });
  for (const auto& contender : contenders) {
    if (&contender != &*first) others = std::max(others, contender.estimate.bounds().upper);
  }
  return {std::move(*first), std::max(others, bar), solved};
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
  TORCH_CHECK_TYPE(at::isFloatingType(m.scalar_type()) && !at::isFloat8Type(m.scalar_type()),
                   "[tensorion.lmo] expected a real floating-point tensor, got ", m.scalar_type());
  TORCH_CHECK_VALUE(m.layout() == at::kStrided, "[tensorion.lmo] expected a dense tensor, got ", m.layout());
  polar.check();
  const auto input = m.detach();
  LmoResult result;
  if (unfolding.is_online() && m.numel() > 0) {
    auto [winner, others, solved] = select(input);
    const auto factor =
        is_halley(polar, m) ? winner.estimate.factor() : certified_polar(winner.estimate.matrix(), polar);
    result.x = winner.fold(factor.x).clone();
    result.modes = winner.modes;
    result.solved = solved;
    result.value = factor.value;
    const double own = std::min(winner.estimate.bounds().upper, factor.nuclear.upper);
    result.upper = std::max({result.value, own, others});
    return result;
  }
  const auto chosen =
      unfolding.is_online() ? UnfoldingStrategy("balanced").choose(m.sizes()) : unfolding.choose(m.sizes());
  const auto factor = certified_polar(chosen.unfold(input), polar);
  result.x = chosen.fold(factor.x).clone();
  result.modes = chosen.modes();
  result.value = factor.value;
  result.solved = 1;
  // The optimum is over all unfoldings: those that were not solved count with their cheap bound.
  result.upper = factor.nuclear.upper;
  if (m.numel() == 0) return result;
  for (const auto& other : candidates(input)) {
    if (other.unfolding.modes() != chosen.canonical()) result.upper = std::max(result.upper, other.upper);
  }
  return result;
}

Direction lmo_direction(const at::Tensor& m, const UnfoldingStrategy& unfolding, const PolarOptions& polar) {
  if (unfolding.is_online() && m.numel() > 0) {
    auto winner = select(m).winner;
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
