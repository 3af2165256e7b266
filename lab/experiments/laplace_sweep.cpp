#include "lab/experiments/laplace_sweep.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lab/training/rate_search.h"

namespace tensorion::lab {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

double geometric_mean(const std::vector<LaplaceRun>& runs, size_t point, double LaplacePoint::* value) {
  double sum = 0;
  for (const auto& run : runs) {
    // An error of exactly 0 is below the rounding error, and its logarithm would be infinite.
    sum += std::log(std::max(run.points[point].*value, std::numeric_limits<double>::epsilon() / 16));
  }
  return std::exp(sum / static_cast<double>(runs.size()));
}

double least_seconds(const std::vector<LaplaceRun>& runs, size_t point) {
  double least = kInfinite;
  for (const auto& run : runs) least = std::min(least, run.points[point].seconds);
  return least;
}

LaplaceRate summarize(double lr, const std::vector<LaplaceRun>& runs) {
  LaplaceRate rate{.lr = lr, .error = kInfinite, .residual = kInfinite};
  for (const auto& run : runs) rate.diverged += run.diverged ? 1 : 0;
  if (rate.diverged > 0) return rate;
  for (size_t i = 0; i < runs[0].points.size(); ++i) {
    rate.points.push_back({.step = runs[0].points[i].step,
                           .quotient = geometric_mean(runs, i, &LaplacePoint::quotient),
                           .error = geometric_mean(runs, i, &LaplacePoint::error),
                           .residual = geometric_mean(runs, i, &LaplacePoint::residual),
                           .seconds = least_seconds(runs, i)});
  }
  const auto& last = rate.points.back();
  rate.error = last.error;
  rate.residual = last.residual;
  rate.seconds_per_step = last.seconds / static_cast<double>(last.step);
  return rate;
}

}  // namespace

const LaplaceRate* LaplaceSweep::best() const {
  const LaplaceRate* best = nullptr;
  for (const auto& rate : rates) {
    if (std::isfinite(rate.error) && (best == nullptr || rate.error < best->error)) best = &rate;
  }
  return best;
}

bool LaplaceSweep::is_best_at_edge() const {
  const auto* found = best();
  return found != nullptr && (found == &rates.front() || found == &rates.back());
}

LaplaceSweep sweep_rates(const std::string& optimizer, int64_t steps, const SweepGrid& grid,
                         const std::function<LaplaceRun(const LaplaceRunKey&)>& run) {
  LaplaceSweep sweep{.optimizer = optimizer, .steps = steps, .rates = {}};
  std::vector<double> lrs;
  const auto add = [&](double lr) {
    std::vector<LaplaceRun> runs;
    runs.reserve(grid.seeds.size());
    for (const int64_t seed : grid.seeds) {
      runs.push_back(run({.optimizer = optimizer, .steps = steps, .lr = lr, .seed = seed}));
    }
    lrs.push_back(lr);
    sweep.rates.push_back(summarize(lr, runs));
    std::ranges::sort(sweep.rates, {}, &LaplaceRate::lr);
  };
  for (const double lr : grid.lrs) add(lr);
  while (std::ssize(sweep.extended) < grid.extensions && sweep.best() != nullptr) {
    const auto beyond = rate_beyond(lrs, sweep.best()->lr);
    if (!beyond) break;
    add(*beyond);
    sweep.extended.push_back(*beyond);
  }
  return sweep;
}

}  // namespace tensorion::lab
