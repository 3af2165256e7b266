#include "tensorion/lmo.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <charconv>
#include <cmath>
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
  double upper;  // of the nuclear norm
};

double frobenius_norm(const at::Tensor& m) {
  const double norm = at::linalg_vector_norm(m, 2, std::nullopt, false, at::kDouble).item<double>();
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
    all.push_back({unfolding, std::sqrt(side) * norm});
  }
  // A vector's only unfolding is itself.
  if (all.empty()) all.push_back({column(m.sizes()), norm});
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
  Unfolding unfolding;
  NuclearEstimate estimate;
};

// To about 1e-7: where certified bounds overlap.
double exact_nuclear_norm(const at::Tensor& a) {
  const auto wide = (a.size(0) > a.size(1) ? a.mT() : a).to(at::kDouble);
  // Eigenvalues of the Gram matrix are found faster, but wrong by MKL (2024.2) inside of a parallel region.
  constexpr int64_t kSmall = 256;
  if (wide.size(0) <= kSmall || at::in_parallel_region())
    return at::linalg_svdvals(wide).sum().item<double>();
  const double scale = wide.abs().max().item<double>();
  const auto normalized = wide / scale;
  return scale *
         at::linalg_eigvalsh(at::mm(normalized, normalized.mT())).clamp_min(0).sqrt().sum().item<double>();
}

// The contender with the largest nuclear norm; counts those that had to be solved.
Contender select(const at::Tensor& m, int64_t& solved) {
  std::vector<Contender> contenders;
  double bar = 0;  // the largest certified lower bound so far
  const auto rule_out = [&] {
    std::erase_if(contenders, [bar](const Contender& c) { return c.estimate.bounds().upper < bar; });
  };
  for (const auto& candidate : candidates(m)) {
    if (candidate.upper < bar) break;
    const auto unfolding = candidate.unfolding.reordered();
    NuclearEstimate estimate(gather(unfolding, m), bar);
    if (estimate.bounds().upper < bar) continue;
    ++solved;
    bar = std::max(bar, estimate.bounds().lower);
    contenders.push_back({unfolding, std::move(estimate)});
    rule_out();
  }
  for (bool refined = true; refined && contenders.size() > 1;) {
    refined = false;
    for (auto& contender : contenders) {
      refined |= contender.estimate.refine();
      bar = std::max(bar, contender.estimate.bounds().lower);
    }
    rule_out();
  }
  if (contenders.size() == 1) return std::move(contenders.front());
  // In the order of enumeration, so that the first of equals wins.
  std::sort(contenders.begin(), contenders.end(), [](const auto& a, const auto& b) {
    const auto& left = a.unfolding.modes();
    const auto& right = b.unfolding.modes();
    return left.size() != right.size() ? left.size() < right.size() : left < right;
  });
  size_t best = 0;
  double best_norm = -1;
  for (size_t i = 0; i < contenders.size(); ++i) {
    // An exact norm may lie outside of the bounds of another.
    const auto& bounds = contenders[i].estimate.bounds();
    if (bounds.upper < best_norm) continue;
    if (bounds.lower > best_norm && i > 0 && i + 1 == contenders.size()) return std::move(contenders[i]);
    const double norm = exact_nuclear_norm(contenders[i].unfolding.unfold(m));
    if (norm > best_norm * (1 + 1e-12)) {
      best = i;
      best_norm = norm;
    }
  }
  return std::move(contenders[best]);
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
    auto winner = select(input, result.solved);
    const auto factor = is_halley(polar, m) ? winner.estimate.factor()
                                            : certified_polar(gather(winner.unfolding, input), polar);
    result.x = winner.unfolding.fold(factor.x).clone();
    result.modes = winner.unfolding.modes();
    result.value = factor.value;
    result.upper = std::max(result.value, std::min(winner.estimate.bounds().upper, factor.nuclear.upper));
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
    int64_t solved = 0;
    auto winner = select(m, solved);
    const auto x =
        is_halley(polar, m) ? winner.estimate.factor().x : polar_scratch(gather(winner.unfolding, m), polar);
    return {winner.unfolding.fold(x), winner.unfolding};
  }
  auto chosen =
      unfolding.is_online() ? UnfoldingStrategy("balanced").choose(m.sizes()) : unfolding.choose(m.sizes());
  if (!chosen.is_view(m)) chosen = chosen.reordered();
  return {chosen.fold(polar_scratch(gather(chosen, m), polar)), chosen};
}

}  // namespace tensorion
