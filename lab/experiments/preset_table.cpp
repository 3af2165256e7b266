#include "lab/experiments/preset_table.h"

#include <algorithm>

#include "lab/text/strings.h"

namespace tensorion::lab {

ResultTable preset_table(const Preset& preset, const std::string& scale,
                         const std::vector<OptimizerComparison>& rows,
                         const std::vector<RunConfig>& configs) {
  ResultTable table{.title = preset.title + " (scale: " + scale + ")",
                    .header = {"method", "paper's name", "lr", "runs", "accuracy %", "paper", "test loss",
                               "paper", "train loss", "seconds", "in optimizer", ""},
                    .rows = {},
                    .alignment = "llrrrrrrrrrl",
                    .notes = preset.notes};
  for (const auto& row : rows) {
    const auto config = std::find_if(configs.begin(), configs.end(), [&](const RunConfig& other) {
      return method_name(other) == row.optimizer;
    });
    const auto method =
        std::find_if(preset.methods.begin(), preset.methods.end(),
                     [&](const PresetMethod& other) { return other.method.name == row.optimizer; });
    const bool is_preset = method != preset.methods.end();
    const PaperResult* paper = is_preset && method->paper ? &*method->paper : nullptr;
    table.rows.push_back(
        {row.optimizer, is_preset ? method->title : "-",
         string_printf("%.3g", config->optimizer_options.lr()), std::to_string(row.runs),
         cell(row.test_accuracy, 2, 100),
         paper != nullptr ? string_printf("%.2f +- %.2f", paper->accuracy, paper->accuracy_std) : "-",
         cell(row.test_loss, 3),
         paper != nullptr ? string_printf("%.3f +- %.3f", paper->loss, paper->loss_std) : "-",
         cell(row.train_loss, 3), cell(row.seconds, 1), cell(row.optimizer_seconds, 1),
         row.diverged > 0 ? std::to_string(row.diverged) + " diverged" : ""});
  }
  if (scale != "paper") {
    table.notes.push_back("(the paper's numbers are of its own scale: " + scale +
                          " is not comparable with them)");
  }
  return table;
}

}  // namespace tensorion::lab
