#include "lab/flags/dry_run.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>

#include "lab/text/strings.h"
#include "lab/training/progress.h"
#include "lab/training/step_cost.h"

namespace tensorion::lab {
namespace {

std::string megabytes(int64_t bytes) { return string_printf("%.1f MB", static_cast<double>(bytes) / 1e6); }

}  // namespace

void print_dry_run(const CLI::App& command, const std::vector<RunConfig>& configs, const DatasetSplits& data,
                   const Workload& workload) {
  std::cout << config_text(command, configs) << '\n';
  std::cout << string_printf("%ld training images, %ld test images, %zu classes\n\n", data.train.count(),
                             data.test.count(), data.classes.size());
  double total = 0;
  for (const auto& config : configs) {
    const auto cost = measure_step(config, data);
    const auto& method = method_name(config);
    total += cost.run_seconds() * static_cast<double>(workload.epochs) /
             static_cast<double>(config.training.epochs);
    std::cout << method << ": how every tensor is updated\n\n" << cost.tensors << '\n';
    std::cout << string_printf(
        "%s, %s: %ld parameters; weights %s, gradients %s, optimizer state %s, at most %s during a step\n"
        "a step on %ld images: %.3g s, %.0f %% of it in the optimizer; a run of %ld steps: about %s, "
        "including "
        "the tests\n\n",
        method.c_str(), config.model.c_str(), cost.parameters, megabytes(cost.weight_bytes).c_str(),
        megabytes(cost.gradient_bytes).c_str(), megabytes(cost.optimizer_bytes).c_str(),
        megabytes(cost.peak_bytes).c_str(), config.batch_size * config.training.accumulate, cost.seconds,
        100 * cost.optimizer_seconds / cost.seconds, cost.steps, duration(cost.run_seconds()).c_str());
  }
  const int64_t runs = static_cast<int64_t>(configs.size()) * workload.runs;
  std::cout << runs << (runs == 1 ? " run" : " runs") << ", about " << duration(total)
            << "; nothing was trained or written (--dry-run)\n";
}

}  // namespace tensorion::lab
