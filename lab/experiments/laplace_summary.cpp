#include "lab/experiments/laplace_summary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lab/experiments/laplacian.h"
#include "lab/io/json_file.h"
#include "lab/text/strings.h"

namespace tensorion::lab {
namespace {

using nlohmann::ordered_json;

ordered_json to_json(const LaplaceSweep& sweep) {
  auto rates = ordered_json::array();
  for (const auto& rate : sweep.rates) {
    rates.push_back({{"lr", rate.lr},
                     {"diverged", rate.diverged},
                     {"error", finite_or_null(rate.error)},
                     {"residual", finite_or_null(rate.residual)},
                     {"seconds_per_step", rate.seconds_per_step}});
  }
  ordered_json out{{"optimizer", sweep.optimizer},
                   {"rates", std::move(rates)},
                   {"extended_lrs", sweep.extended},
                   {"best_is_at_edge", sweep.is_best_at_edge()},
                   {"best", nullptr}};
  if (const auto* best = sweep.best()) {
    auto points = ordered_json::array();
    for (const auto& point : best->points) points.push_back(to_json(point));
    out["best"] = {{"lr", best->lr}, {"points", std::move(points)}};
  }
  return out;
}

std::string remark(const LaplaceSweep& sweep) {
  if (sweep.is_best_at_edge()) return "at the edge";
  return std::ranges::find(sweep.extended, sweep.best()->lr) != sweep.extended.end() ? "beyond the grid" : "";
}

}  // namespace

ordered_json to_json(const LaplaceProblem& problem, const std::vector<LaplaceSweep>& sweeps) {
  auto budgets = ordered_json::array();
  for (const auto& sweep : sweeps) {
    if (budgets.empty() || budgets.back()["steps"] != sweep.steps) {
      budgets.push_back({{"steps", sweep.steps}, {"optimizers", ordered_json::array()}});
    }
    budgets.back()["optimizers"].push_back(to_json(sweep));
  }
  return {{"problem", problem.str()},
          {"dimensions", problem.d},
          {"points", problem.n},
          {"rank", problem.rank},
          {"eigenvalue", smallest_eigenvalue(problem.d, problem.n)},
          {"budgets", std::move(budgets)}};
}

ResultTable laplace_table(const LaplaceProblem& problem, const std::vector<LaplaceSweep>& sweeps) {
  ResultTable table;
  table.title = string_printf(
      "Laplacian in %ld dimensions with %ld points each, tensor trains of rank %ld: smallest eigenvalue "
      "%.10g",
      problem.d, problem.n, problem.rank, smallest_eigenvalue(problem.d, problem.n));
  table.header = {"steps", "optimizer", "best lr", "error", "residual", "seconds", "ms/step", "best lr is"};
  table.alignment = "rlrrrrrl";
  for (const auto& sweep : sweeps) {
    TableRow row{std::to_string(sweep.steps), sweep.optimizer};
    if (const auto* best = sweep.best()) {
      row.insert(row.end(),
                 {string_printf("%.3g", best->lr), string_printf("%.2e", best->error),
                  string_printf("%.2e", best->residual), string_printf("%.3g", best->points.back().seconds),
                  string_printf("%.2f", 1e3 * best->seconds_per_step), remark(sweep)});
    } else {
      row.emplace_back("diverged");
    }
    row.resize(table.header.size());
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace tensorion::lab
