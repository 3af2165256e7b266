#include "lab/experiments/laplace_study.h"

#include <algorithm>

#include "lab/text/strings.h"
#include "lab/training/interrupt.h"
#include "lab/training/run.h"

namespace tensorion::lab {
namespace {

constexpr int64_t kMeasuredSteps = 4;  // the first one is a warm-up

double measure_step(const LaplaceProblem& problem, const std::string& optimizer, const LaplaceStudy& study) {
  auto options = study.options;
  options.records = kMeasuredSteps;
  const LaplaceRunKey key{
      .optimizer = optimizer, .steps = kMeasuredSteps, .lr = study.grid.lrs.front(), .seed = 0};
  const auto points = minimize_quotient(problem, key, options).points;
  if (points.size() < 3) return 0;  // diverged at once
  return (points.back().seconds - points[1].seconds) / static_cast<double>(points.size() - 2);
}

}  // namespace

size_t LaplaceStudy::runs() const {
  return problems.size() * budgets.size() * optimizers.size() * grid.lrs.size() * grid.seeds.size();
}

LaplaceCosts::LaplaceCosts(const LaplaceStudy& study) {
  for (const auto& problem : study.problems) {
    for (const auto& optimizer : study.optimizers) {
      seconds_[{problem.str(), optimizer}] = measure_step(problem, optimizer, study);
    }
  }
}

double LaplaceCosts::seconds_per_step(const LaplaceProblem& problem, const std::string& optimizer) const {
  return seconds_.at({problem.str(), optimizer});
}

double LaplaceCosts::seconds(const LaplaceStudy& study, const LaplaceRecord& record) const {
  double total = 0;
  for (const auto& problem : study.problems) {
    for (const auto& optimizer : study.optimizers) {
      double steps = 0;
      for (const int64_t budget : study.budgets) {
        for (const double lr : study.grid.lrs) {
          for (const int64_t seed : study.grid.seeds) {
            const bool is_done = record.find(problem, {optimizer, budget, lr, seed}) != nullptr;
            steps += is_done ? 0 : static_cast<double>(budget);
          }
        }
      }
      total += steps * seconds_per_step(problem, optimizer);
    }
  }
  return total;
}

ResultTable cost_table(const LaplaceStudy& study, const LaplaceCosts& costs) {
  ResultTable table{.title = "Milliseconds per step", .header = {"problem"}, .rows = {}, .alignment = "l"};
  table.header.insert(table.header.end(), study.optimizers.begin(), study.optimizers.end());
  table.alignment.append(study.optimizers.size(), 'r');
  for (const auto& problem : study.problems) {
    TableRow row{problem.str()};
    for (const auto& optimizer : study.optimizers) {
      row.push_back(string_printf("%.2f", 1e3 * costs.seconds_per_step(problem, optimizer)));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

LaplaceRunner::LaplaceRunner(const LaplaceStudy& study, LaplaceRecord& record)
    : study_(study), record_(record), terminal_(stderr), total_(study.runs()) {}

LaplaceRunner::~LaplaceRunner() {
  if (terminal_.is_tty()) terminal_.show({});
}

std::vector<LaplaceSweep> LaplaceRunner::sweep(const LaplaceProblem& problem) {
  std::vector<LaplaceSweep> sweeps;
  for (const int64_t steps : study_.budgets) {
    for (const auto& optimizer : study_.optimizers) {
      sweeps.push_back(sweep_rates(optimizer, steps, study_.grid,
                                   [&](const LaplaceRunKey& key) { return run(problem, key); }));
      const auto& sweep = sweeps.back();
      const auto* best = sweep.best();
      std::string line =
          string_printf("%s, %ld steps, %s: ", problem.str().c_str(), steps, optimizer.c_str());
      if (best == nullptr) {
        line += "all runs diverged";
      } else {
        line += string_printf("best lr %.3g%s, error %.2e", best->lr,
                              sweep.is_best_at_edge() ? " (at the edge of the grid)" : "", best->error);
      }
      terminal_.print(line);
    }
  }
  return sweeps;
}

const LaplaceRun& LaplaceRunner::run(const LaplaceProblem& problem, const LaplaceRunKey& key) {
  const bool is_extension = std::ranges::find(study_.grid.lrs, key.lr) == study_.grid.lrs.end();
  total_ += is_extension ? 1 : 0;
  const auto* run = record_.find(problem, key);
  if (run == nullptr) {
    const auto stop_if_interrupted = [&] {
      if (interrupt_signal() != 0) {
        throw Interrupted(string_printf("stopped in run %zu of %zu", count_ + 1, total_));
      }
    };
    run = &record_.add(problem, minimize_quotient(problem, key, study_.options, stop_if_interrupted));
  }
  ++count_;
  if (terminal_.is_tty()) {
    terminal_.show(
        {string_printf("run %zu of %zu: %s, %ld steps, %s, lr %.3g: error %.2e", count_, total_,
                       problem.str().c_str(), key.steps, key.optimizer.c_str(), key.lr, run->final_error())});
  }
  return *run;
}

}  // namespace tensorion::lab
