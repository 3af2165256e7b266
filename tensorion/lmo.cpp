#include "tensorion/lmo.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <sstream>

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
  double upper;                             // of the nuclear norm
  std::optional<NuclearEstimate> estimate;  // where it was solved
};

// All unfoldings with the bound ||A||_* <= sqrt(min(m, n)) ||A||_F, by decreasing bound.
std::vector<Candidate> candidates(const at::Tensor& m) {
  const double norm =
      at::linalg_vector_norm(m, 2, std::nullopt, false, at::kDouble).item<double>() * (1 + 1e-6);
  const auto bound = [&](const Unfolding& unfolding) {
    return std::sqrt(static_cast<double>(std::min(unfolding.rows(), unfolding.cols()))) * norm;
  };
  std::vector<Candidate> all;
  for (const auto& modes : unfoldings(m.sizes())) {
    const Unfolding unfolding(m.sizes(), modes);
    all.push_back({unfolding, bound(unfolding), std::nullopt});
  }
  // A vector's only unfolding is itself.
  if (all.empty()) all.push_back({column(m.sizes()), norm, std::nullopt});
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.upper > b.upper; });
  return all;
}

// To about 1e-7: where certified bounds overlap.
double exact_nuclear_norm(const at::Tensor& a) {
  const auto wide = (a.size(0) > a.size(1) ? a.mT() : a).to(at::kDouble);
  constexpr int64_t kSmall = 256;
  if (wide.size(0) <= kSmall) return at::linalg_svdvals(wide).sum().item<double>();
  const double scale = wide.abs().max().item<double>();
  const auto normalized = wide / scale;
  return scale *
         at::linalg_eigvalsh(at::mm(normalized, normalized.mT())).clamp_min(0).sqrt().sum().item<double>();
}

// The candidate with the largest nuclear norm; counts those that had to be solved.
Candidate select(const at::Tensor& m, int64_t& solved) {
  std::vector<Candidate> contenders;
  double bar = 0;  // the largest certified lower bound so far
  for (auto& candidate : candidates(m)) {
    if (candidate.upper < bar) break;
    auto estimate = NuclearEstimate(candidate.unfolding.unfold(m), bar);
    candidate.upper = estimate.bounds().upper;
    if (candidate.upper < bar) continue;
    ++solved;
    bar = std::max(bar, estimate.bounds().lower);
    candidate.estimate = std::move(estimate);
    contenders.push_back(std::move(candidate));
    std::erase_if(contenders, [bar](const Candidate& other) { return other.upper < bar; });
  }
  if (contenders.size() > 1) {
    for (auto& contender : contenders) {
      contender.estimate->refine();
      contender.upper = contender.estimate->bounds().upper;
      bar = std::max(bar, contender.estimate->bounds().lower);
    }
    std::erase_if(contenders, [bar](const Candidate& other) { return other.upper < bar; });
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
    const double norm = exact_nuclear_norm(contenders[i].unfolding.unfold(m));
    if (norm > best_norm * (1 + 1e-12)) {
      best = i;
      best_norm = norm;
    }
  }
  contenders[best].upper = std::min(contenders[best].upper, best_norm * (1 + 1e-6));
  return std::move(contenders[best]);
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
  static const std::regex kModes(R"(\(\s*(\d{1,9}\s*,\s*)*(\d{1,9}\s*)?\))");
  TORCH_CHECK_VALUE(std::regex_match(text, kModes), "[tensorion.lmo] expected modes such as '(0, 2)', got '",
                    text, "'");
  Modes modes;
  static const std::regex kNumber(R"(\d+)");
  for (std::sregex_iterator match(text.begin(), text.end(), kNumber), end; match != end; ++match) {
    modes.push_back(std::stoll(match->str()));
  }
  return modes;
}

LmoResult lmo(const at::Tensor& m, const UnfoldingStrategy& unfolding, const PolarOptions& polar) {
  TORCH_CHECK_TYPE(at::isFloatingType(m.scalar_type()),
                   "[tensorion.lmo] expected a real floating-point tensor, got ", m.scalar_type());
  polar.check();
  const auto input = m.detach();
  LmoResult result;
  if (unfolding.is_online() && m.numel() > 0) {
    auto winner = select(input, result.solved);
    const bool halley = polar.method == "halley" || (polar.method == "auto" && m.is_cpu());
    const auto factor =
        halley ? winner.estimate->factor() : certified_polar(winner.unfolding.unfold(input), polar);
    result.x = winner.unfolding.fold(factor.x);
    result.modes = winner.unfolding.modes();
    result.value = factor.value;
    result.upper = std::max(result.value, std::min(winner.upper, factor.nuclear.upper));
    return result;
  }
  const auto chosen =
      unfolding.is_online() ? UnfoldingStrategy("balanced").choose(m.sizes()) : unfolding.choose(m.sizes());
  const auto factor = certified_polar(chosen.unfold(input), polar);
  result.x = chosen.fold(factor.x);
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

}  // namespace tensorion
