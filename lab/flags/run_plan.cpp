#include "lab/flags/run_plan.h"

#include <c10/util/StringUtil.h>

#include <iostream>

#include "lab/text/strings.h"
#include "lab/training/progress.h"
#include "lab/training/step_cost.h"

namespace tensorion::lab {
namespace {

// Returns a text such as "multistep (times 0.1 after epochs 5, 8)".
std::string schedule_text(const TrainerOptions& training) {
  const auto& schedule = training.schedule;
  auto text = schedule.name;
  if (schedule.name == "multistep") {
    text += string_printf(" (times %g after epochs ", schedule.gamma) +
            c10::Join(", ", epochs_of_milestones(schedule, training.epochs)) + ")";
  }
  if (schedule.warmup_epochs > 0) text += string_printf(", warm-up of %g epochs", schedule.warmup_epochs);
  return text;
}

}  // namespace

void print_plan(const std::vector<RunConfig>& configs, const DatasetSplits& data, const Workload& workload) {
  const auto& config = configs.front();
  const auto& [height, width] = data.train_transform.size;
  std::string text =
      string_printf("data: %s from %s: %ld training samples, %ld test samples, ", config.dataset.c_str(),
                    data.folder.c_str(), data.train.count(), data.test.count());
  if (data.validation) text += string_printf("%ld validation samples, ", data.validation->count());
  text += string_printf("%zu classes, %ld x %ld\nmodel: %s, width %g, on %s\n", data.classes.size(), height,
                        width, config.model.c_str(), config.width, config.training.device.str().c_str());
  for (const auto& each : configs) {
    text += string_printf("optimizer: %s, lr %g, weight decay %g, schedule %s\n", method_name(each).c_str(),
                          each.optimizer_options.lr(), each.optimizer_options.weight_decay(),
                          schedule_text(each.training).c_str());
  }
  const int64_t runs = workload.runs * static_cast<int64_t>(configs.size());
  text += string_printf("training: %ld run%s of %ld epoch%s, %ld batches of %ld each\n", runs,
                        runs == 1 ? "" : "s", config.training.epochs, config.training.epochs == 1 ? "" : "s",
                        train_loader(config, data).batches(), config.batch_size);
  std::cerr << text;
  double seconds = 0;
  for (const auto& each : configs) {
    seconds += measure_step(each, data).run_seconds() * static_cast<double>(workload.epochs) /
               static_cast<double>(each.training.epochs);
  }
  std::cerr << "estimated time: " + duration(seconds) + " (measured on a step of each method)\n";
}

}  // namespace tensorion::lab
