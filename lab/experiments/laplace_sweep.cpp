#include "lab/experiments/laplace_sweep.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lab/experiments/laplacian.h"
#include "lab/text/strings.h"

namespace tensorion::lab {
namespace {

using nlohmann::ordered_json;

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kTargets[] = {1e-1, 1e-2, 1e-4};  // errors whose first step the table has

double geometric_mean(const std::vector<LaplaceRun>& runs, size_t point, double LaplacePoint::* value) {
  double sum = 0;
  for (const auto& run : runs) {
    // An error of exactly 0 is one below rounding.
    sum += std::log(std::max(run.points[point].*value, std::numeric_limits<double>::epsilon() / 16));
  }
  return std::exp(sum / static_cast<double>(runs.size()));
}

LaplaceRate summarize(double lr, const std::vector<LaplaceRun>& runs) {
  LaplaceRate rate{.lr = lr, .error = kInfinite, .residual = kInfinite};
  double seconds = 0, steps = 0;
  for (const auto& run : runs) {
    rate.diverged += run.diverged ? 1 : 0;
    if (run.points.empty()) continue;
    seconds += run.points.back().seconds;
    steps += static_cast<double>(run.points.back().step);
  }
  rate.seconds_per_step = steps > 0 ? seconds / steps : 0;
  if (rate.diverged > 0) return rate;
  for (size_t i = 0; i < runs[0].points.size(); ++i) {
    rate.points.push_back({.step = runs[0].points[i].step,
                           .quotient = geometric_mean(runs, i, &LaplacePoint::quotient),
                           .error = geometric_mean(runs, i, &LaplacePoint::error),
                           .residual = geometric_mean(runs, i, &LaplacePoint::residual)});
  }
  rate.error = rate.points.back().error;
  rate.residual = rate.points.back().residual;
  return rate;
}

ordered_json finite(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

// The first recorded step at which the error is at most the target.
std::string steps_to(const LaplaceRate& rate, double target) {
  for (const auto& point : rate.points) {
    if (point.error <= target) return std::to_string(point.step);
  }
  return "-";
}

}  // namespace

const LaplaceRate* LaplaceSweep::best() const {
  const LaplaceRate* best = nullptr;
  for (const auto& rate : rates) {
    if (std::isfinite(rate.error) && (best == nullptr || rate.error < best->error)) best = &rate;
  }
  return best;
}

LaplaceSweep sweep_rates(const std::string& optimizer, const std::vector<double>& lrs,
                         const std::vector<int64_t>& seeds,
                         const std::function<LaplaceRun(double lr, int64_t seed)>& run) {
  LaplaceSweep sweep{.optimizer = optimizer, .rates = {}};
  for (const double lr : lrs) {
    std::vector<LaplaceRun> runs;
    runs.reserve(seeds.size());
    for (const int64_t seed : seeds) runs.push_back(run(lr, seed));
    sweep.rates.push_back(summarize(lr, runs));
  }
  return sweep;
}

ordered_json to_json(const LaplaceProblem& problem, const std::vector<LaplaceSweep>& sweeps) {
  auto optimizers = ordered_json::array();
  for (const auto& sweep : sweeps) {
    auto rates = ordered_json::array();
    for (const auto& rate : sweep.rates) {
      rates.push_back({{"lr", rate.lr},
                       {"diverged", rate.diverged},
                       {"error", finite(rate.error)},
                       {"residual", finite(rate.residual)},
                       {"seconds_per_step", rate.seconds_per_step}});
    }
    ordered_json entry{{"optimizer", sweep.optimizer}, {"rates", std::move(rates)}, {"best", nullptr}};
    if (const auto* best = sweep.best()) {
      auto points = ordered_json::array();
      for (const auto& point : best->points) points.push_back(to_json(point));
      entry["best"] = {{"lr", best->lr}, {"points", std::move(points)}};
    }
    optimizers.push_back(std::move(entry));
  }
  return {{"problem", problem.str()},
          {"dimensions", problem.d},
          {"points", problem.n},
          {"rank", problem.rank},
          {"eigenvalue", smallest_eigenvalue(problem.d, problem.n)},
          {"optimizers", std::move(optimizers)}};
}

ResultTable laplace_table(const LaplaceProblem& problem, const std::vector<LaplaceSweep>& sweeps) {
  ResultTable table;
  table.title = string_printf(
      "Laplacian in %ld dimensions, %ld points each, trains of rank %ld: smallest eigenvalue %.10g",
      problem.d, problem.n, problem.rank, smallest_eigenvalue(problem.d, problem.n));
  table.header = {"optimizer", "best lr", "error", "residual"};
  for (const double target : kTargets) table.header.push_back(string_printf("steps to %.0e", target));
  table.header.emplace_back("ms/step");
  table.alignment.assign(table.header.size(), 'r');
  table.alignment.front() = 'l';
  for (const auto& sweep : sweeps) {
    const auto* best = sweep.best();
    TableRow row{sweep.optimizer};
    if (best == nullptr) {
      row.emplace_back("diverged");
    } else {
      row.insert(row.end(), {string_printf("%.3g", best->lr), string_printf("%.2e", best->error),
                             string_printf("%.2e", best->residual)});
      for (const double target : kTargets) row.push_back(steps_to(*best, target));
      row.push_back(string_printf("%.2f", 1e3 * best->seconds_per_step));
    }
    row.resize(table.header.size());
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace tensorion::lab
