// Computes the relaxed norm with the alternating direction method of multipliers (ADMM).
//
// The multiplier of the constraint sum_tau xi^tau = x is the dual tensor m. With K unfoldings, an iteration
// updates every part xi^tau to
//   prox(xi^tau + r / K + m / rho),  r = x - sum_tau xi^tau,
// in which prox is the proximal operator of ||.||_2 / rho. It clips the singular values at the level that
// reduces their sum by 1 / rho. The upper bound of the norm is the sum of the spectral norms of the parts,
// after the residual r is distributed over them. The lower bound is <m, x> divided by the dual norm of m.
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
constexpr int64_t kCheckEvery = 10;    // iterations between two updates of the bounds and of the penalty
constexpr int64_t kAdaptUntil = 1000;  // the penalty is constant from then on, so that ADMM converges
constexpr double kOverRelaxation = 1.7;
constexpr double kImbalance = 1.5;  // ratio of the residuals from which on the penalty changes
constexpr double kPenaltyFactor = 1.3;

double frobenius(const at::Tensor& x) { return at::linalg_vector_norm(x).item<double>(); }

// Returns the unfoldings of a family, each with rows <= cols.
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

// Returns ||x_(tau)||_2 from the eigenvalues of the Gram matrix. Squaring loses precision in the small
// singular values, but not in the largest one.
double unfolded_spectral_norm(const Unfolding& wide, const at::Tensor& x) {
  const auto matrix = wide.unfold(x);
  const auto eigenvalues = at::linalg_eigvalsh(at::matmul(matrix, matrix.mT()));
  return std::sqrt(std::max(0.0, eigenvalues[-1].item<double>()));
}

// Returns the level t with sum_i max(0, sigma_i - t) = excess, or 0 if the sum of all sigma_i is at most
// `excess`. `sigma` is in descending order.
double clipping_level(const std::vector<double>& sigma, double excess) {
  double level = 0;
  double sum = 0;
  for (size_t i = 0; i < sigma.size() && sigma[i] > level; ++i) {
    sum += sigma[i];
    level = std::max(0.0, (sum - excess) / static_cast<double>(i + 1));
  }
  return level;
}

// Returns the minimizer xi of weight * ||xi_(tau)||_2 + ||xi - v||^2 / 2. An undefined tensor stands for 0.
at::Tensor prox(const Unfolding& wide, const at::Tensor& v, double weight) {
  // The minimizer is 0 if ||v_(tau)||_* <= weight. The bound ||A||_* <= sqrt(rows) ||A||_F often shows this
  // without a decomposition.
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

class RelaxedNormSolver {
 public:
  RelaxedNormSolver(const at::Tensor& x, const Family& family)
      : x_(x), size_(frobenius(x)), family_(family), unfoldings_(wide_unfoldings(x.sizes(), family)) {
    // Start with a single part and with x as the dual tensor. This is the solution for every x whose balanced
    // unfolding is orthogonal.
    size_t best = 0;
    for (size_t i = 0; i < unfoldings_.size(); ++i) {
      const double norm = unfolded_spectral_norm(unfoldings_[i], x_);
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
  // One iteration. Then updates the bounds if `update_bounds`, and the penalty if `adapt`.
  void iterate(bool update_bounds, bool adapt) {
    const auto count = static_cast<double>(unfoldings_.size());
    auto share = x_.clone();
    for (const auto& part : parts_) share -= part;
    share /= count;
    std::vector<at::Tensor> proximal(parts_.size());
    auto residual = x_.clone();
    double squared_change = 0;  // sum_tau ||change of xi^tau||_F^2
    for (size_t i = 0; i < parts_.size(); ++i) {
      const auto from = parts_[i] + share;
      proximal[i] = prox(unfoldings_[i], at::add(from, multiplier_, 1 / penalty_), 1 / penalty_);
      parts_[i] = from * (1 - kOverRelaxation);
      if (proximal[i].defined()) {
        parts_[i].add_(proximal[i], kOverRelaxation);
        residual -= proximal[i];
      }
      if (adapt) squared_change += std::pow(frobenius(proximal[i].defined() ? proximal[i] - from : from), 2);
    }
    multiplier_ = multiplier_ + residual * (kOverRelaxation * penalty_ / count);
    if (update_bounds) tighten(proximal, residual);
    if (adapt) {
      const double primal = frobenius(residual) / size_;
      const double dual = penalty_ * std::sqrt(squared_change / count) / frobenius(multiplier_);
      if (primal > kImbalance * dual) penalty_ *= kPenaltyFactor;
      if (dual > kImbalance * primal) penalty_ /= kPenaltyFactor;
    }
  }

  // Updates the upper bound from the parts, after the residual is distributed over those that are not zero,
  // and the lower bound from the multiplier.
  void tighten(const std::vector<at::Tensor>& parts, const at::Tensor& residual) {
    const auto active =
        std::count_if(parts.begin(), parts.end(), [](const at::Tensor& part) { return part.defined(); });
    double sum = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!parts[i].defined()) continue;
      sum += unfolded_spectral_norm(unfoldings_[i],
                                    at::add(parts[i], residual, 1.0 / static_cast<double>(active)));
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

// Renumbers the modes of a family for the tensor without its modes of size 1.
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
  RelaxedNormSolver solver(values, members);
  solver.solve(tol);
  return norm_bounds(input, solver.lower(), solver.upper());
}

}  // namespace tensorion
