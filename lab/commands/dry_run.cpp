#include "lab/commands/dry_run.h"

#include <c10/util/StringUtil.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>

#include "lab/text/result_table.h"
#include "lab/text/strings.h"
#include "lab/training/progress.h"
#include "lab/training/step_cost.h"

namespace tensorion::lab {
namespace {

std::string megabytes(int64_t bytes) { return string_printf("%.1f MB", static_cast<double>(bytes) / 1e6); }

ResultTable tensor_table(const std::string& method, const std::vector<TensorPlan>& plans) {
  ResultTable table{.title = method + ": what happens to every tensor",
                    .header = {"tensor", "shape", "algorithm", "modes", "matrix"},
                    .rows = {},
                    .alignment = "lllll"};
  for (const auto& plan : plans) {
    const bool is_matrix = plan.rows > 0;
    table.rows.push_back(
        {plan.name, c10::Join("x", plan.shape), plan.algorithm,
         plan.is_online ? "online"
         : is_matrix    ? "{" + c10::Join(",", plan.modes) + "}"
                        : "-",
         is_matrix && !plan.is_online ? std::to_string(plan.rows) + " x " + std::to_string(plan.cols) : "-"});
  }
  return table;
}

}  // namespace

void print_dry_run(const CLI::App& command, const RunFlags& flags, const std::vector<RunConfig>& configs,
                   const DatasetSplits& data, int64_t seeds) {
  std::cout << config_text(command, configs) << '\n';
  std::cout << string_printf("%ld pictures to train on, %ld to test on, %zu classes\n\n", data.train.count(),
                             data.test.count(), data.classes.size());
  double total = 0;
  for (const auto& config : configs) {
    const auto cost = measure_step(config, data);
    const auto& method = method_name(config);
    print_table(std::cout, tensor_table(method, cost.plans));
    const double seconds = cost.seconds * static_cast<double>(cost.steps);
    total += seconds * static_cast<double>(seeds);
    std::cout << string_printf(
        "%s, %s: %ld parameters; weights %s, gradients %s, optimizer state %s, at most %s during a step\n"
        "a step of %ld pictures: %.3g s, %.0f %% of it in the optimizer; %ld steps: about %s, without "
        "tests\n\n",
        method.c_str(), config.model.c_str(), cost.parameters, megabytes(cost.weight_bytes).c_str(),
        megabytes(cost.gradient_bytes).c_str(), megabytes(cost.optimizer_bytes).c_str(),
        megabytes(cost.peak_bytes).c_str(), config.batch_size * config.training.accumulate, cost.seconds,
        100 * cost.optimizer_seconds / cost.seconds, cost.steps, duration(seconds).c_str());
  }
  const int64_t runs = static_cast<int64_t>(configs.size()) * seeds;
  std::cout << runs << (runs == 1 ? " run" : " runs") << ", about " << duration(total)
            << " of training; nothing was trained or written (--dry-run)\n";
}

}  // namespace tensorion::lab
