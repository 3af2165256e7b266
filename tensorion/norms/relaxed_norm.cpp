// The relaxed norm by the alternating direction method of multipliers (ADMM).
//
// The parts xi^tau share the constraint sum_tau xi^tau = x, whose multiplier is
// the dual tensor m. An iteration moves every part to
//   prox(xi^tau + r / K + m / rho),  r = x - sum_tau xi^tau,  K unfoldings,
// where prox is that of ||.||_2 / rho: it clips the singular values at the
// level that takes 1 / rho off their sum. The parts, with what is left of r
// added, bound the norm from above, and m over its dual norm from below.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tensorion/core/precision.h"
#include "tensorion/core/strided.h"
#include "tensorion/norms.h"
#include "tensorion/norms/norm_input.h"
#include "tensorion/unfolding.h"

namespace tensorion {
namespace {

constexpr int64_t kMaxIterations = 10000;
constexpr int64_t kCheckEvery = 10;    // iterations between certificates and changes of the penalty
constexpr int64_t kAdaptUntil = 1000;  // a penalty that stays is what convergence is proved for
constexpr double kOverRelaxation = 1.7;
constexpr double kImbalance = 1.5;  // of the residuals, before the penalty changes
constexpr double kPenaltyFactor = 1.3;

double frobenius(const at::Tensor& x) { return at::linalg_vector_norm(x).item<double>(); }

// The unfoldings of a family, each with its smaller side as rows.
std::vector<Unfolding> wide_unfoldings(at::IntArrayRef shape, const Family& family) {
  std::vector<Unfolding> wide;
  for (const auto& modes : unfoldings_of(shape, family, "relaxed_norm")) {
    wide.emplace_back(shape, modes);
    if (wide.back().rows() <= wide.back().cols()) continue;
    Modes rest;
    for (int64_t mode = 0; mode < static_cast<int64_t>(shape.size()); ++mode) {
      if (!std::binary_search(modes.begin(), modes.end(), mode)) rest.push_back(mode);
    }
    wide.back() = Unfolding(shape, rest);
  }
  return wide;
}

// ||x_(tau)||_2, by the eigenvalues of the smaller Gram matrix: squaring costs
// the small singular values their digits, but not the largest.
double spectral(const Unfolding& wide, const at::Tensor& x) {
  const auto matrix = wide.unfold(x);
  const auto eigenvalues = at::linalg_eigvalsh(at::matmul(matrix, matrix.mT()));
  return std::sqrt(std::max(0.0, eigenvalues[-1].item<double>()));
}

// The level t with sum_i max(0, sigma_i - t) = excess; 0 if the sum of all
// sigma_i, which come in descending order, does not exceed `excess`.
double clipping_level(const std::vector<double>& sigma, double excess) {
  double level = 0;
  double sum = 0;
  for (size_t i = 0; i < sigma.size() && sigma[i] > level; ++i) {
    sum += sigma[i];
    level = std::max(0.0, (sum - excess) / static_cast<double>(i + 1));
  }
  return level;
}

// The xi that minimizes weight * ||xi_(tau)||_2 + ||xi - v||^2 / 2. An
// undefined tensor stands for xi = 0.
at::Tensor prox(const Unfolding& wide, const at::Tensor& v, double weight) {
  // If ||v_(tau)||_* <= weight, xi is 0; no decomposition is needed if the bound
  // shows that already.
  if (std::sqrt(static_cast<double>(wide.rows())) * frobenius(v) <= weight) return {};
  const auto matrix = wide.unfold(v);
  const auto [eigenvalues, vectors] = at::linalg_eigh(at::matmul(matrix, matrix.mT()));
  const auto* ascending = eigenvalues.const_data_ptr<double>();
  std::vector<double> sigma(wide.rows());
  for (int64_t i = 0; i < wide.rows(); ++i) {
    sigma[i] = std::sqrt(std::max(0.0, ascending[wide.rows() - 1 - i]));
  }
  const double level = clipping_level(sigma, weight);
  if (level == 0) return {};
  const auto clipped = std::count_if(sigma.begin(), sigma.end(), [&](double s) { return s > level; });
  const auto u = vectors.narrow(1, wide.rows() - clipped, clipped);
  const auto excess = 1 - level * eigenvalues.narrow(0, wide.rows() - clipped, clipped).rsqrt();
  return wide.fold(at::addmm(matrix, u * excess, at::matmul(u.mT(), matrix), 1, -1));
}

class Relaxation {
 public:
  Relaxation(const at::Tensor& x, const Family& family)
      : x_(x), size_(frobenius(x)), family_(family), unfoldings_(wide_unfoldings(x.sizes(), family)) {
    // The decomposition with one part, and x itself as the dual tensor, which
    // is the answer for every x whose balanced unfolding is orthogonal.
    size_t best = 0;
    for (size_t i = 0; i < unfoldings_.size(); ++i) {
      const double norm = spectral(unfoldings_[i], x_);
      if (norm < upper_) upper_ = norm, best = i;
    }
    parts_.assign(unfoldings_.size(), at::zeros_like(x_));
    parts_[best] = x_;
    multiplier_ = x_ / dual_norm(x_, family_);
    lower_ = inner_product(multiplier_, x_);
    penalty_ = static_cast<double>(unfoldings_.size()) * frobenius(multiplier_) / size_;
  }

  void solve(double tol) {
    for (int64_t i = 1; i <= kMaxIterations && upper_ - lower_ > tol * upper_; ++i) {
      const bool check = i % kCheckEvery == 0;
      iterate(check, check && i <= kAdaptUntil);
    }
  }

  double lower() const { return lower_; }
  double upper() const { return upper_; }

 private:
  void iterate(bool certify, bool adapt) {
    const auto count = static_cast<double>(unfoldings_.size());
    auto share = x_.clone();
    for (const auto& part : parts_) share -= part;
    share /= count;
    std::vector<at::Tensor> proximal(parts_.size());
    auto residual = x_.clone();
    double moved = 0;  // sum_tau ||change of xi^tau||_F^2
    for (size_t i = 0; i < parts_.size(); ++i) {
      const auto from = parts_[i] + share;
      proximal[i] = prox(unfoldings_[i], at::add(from, multiplier_, 1 / penalty_), 1 / penalty_);
      parts_[i] = from * (1 - kOverRelaxation);
      if (proximal[i].defined()) {
        parts_[i].add_(proximal[i], kOverRelaxation);
        residual -= proximal[i];
      }
      if (adapt) moved += std::pow(frobenius(proximal[i].defined() ? proximal[i] - from : from), 2);
    }
    multiplier_ = multiplier_ + residual * (kOverRelaxation * penalty_ / count);
    if (certify) tighten(proximal, residual);
    if (adapt) {
      const double primal = frobenius(residual) / size_;
      const double dual = penalty_ * std::sqrt(moved / count) / frobenius(multiplier_);
      if (primal > kImbalance * dual) penalty_ *= kPenaltyFactor;
      if (dual > kImbalance * primal) penalty_ /= kPenaltyFactor;
    }
  }

  // The bounds that the parts, with the residual spread over those that are not
  // zero, and the multiplier give.
  void tighten(const std::vector<at::Tensor>& parts, const at::Tensor& residual) {
    const auto active =
        std::count_if(parts.begin(), parts.end(), [](const at::Tensor& part) { return part.defined(); });
    double sum = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!parts[i].defined()) continue;
      sum += spectral(unfoldings_[i], at::add(parts[i], residual, 1.0 / static_cast<double>(active)));
    }
    if (active > 0) upper_ = std::min(upper_, sum);
    lower_ =
        std::max(lower_, inner_product(multiplier_, x_) / dual_norm(multiplier_, family_).item<double>());
  }

  at::Tensor x_;
  double size_;  // ||x||_F
  Family family_;
  std::vector<Unfolding> unfoldings_;
  std::vector<at::Tensor> parts_;  // xi^tau
  at::Tensor multiplier_;          // m
  double penalty_ = 0;             // rho
  double lower_ = 0;
  double upper_ = std::numeric_limits<double>::infinity();
};

// The family of a tensor for the same tensor without its modes of size 1.
Family squeezed(const Family& family, at::IntArrayRef shape) {
  Family result;
  for (const auto& modes : unfoldings_of(shape, family, "relaxed_norm")) {
    auto& own = result.emplace_back();
    for (const int64_t mode : modes)
      own.push_back(
          std::count_if(shape.begin(), shape.begin() + mode, [](int64_t size) { return size != 1; }));
  }
  return result;
}

}  // namespace

NormBounds relaxed_norm(const at::Tensor& x, double tol, const Family& family) {
  const NoAutocastGuard no_autocast;
  TORCH_CHECK_VALUE(tol > 0 && tol < 1, "[tensorion.relaxed_norm] tol must be in (0, 1), got ", tol);
  const auto input = norm_input(x, "relaxed_norm");
  const auto members = squeezed(family, x.sizes());
  const auto& values = input.values;
  if (values.numel() == 0 || values.abs().max().item<double>() == 0) return {0, 0};
  if (values.dim() <= 2) {
    const auto norm = values.dim() == 2 ? at::linalg_svdvals(values)[0] : at::linalg_vector_norm(values);
    return norm_bounds(input, norm.item<double>(), norm.item<double>());
  }
  Relaxation relaxation(values, members);
  relaxation.solve(tol);
  return norm_bounds(input, relaxation.lower(), relaxation.upper());
}

}  // namespace tensorion
