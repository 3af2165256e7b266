#include "lab/experiments/preset_table.h"

#include <algorithm>

#include "lab/text/strings.h"

namespace tensorion::lab {
namespace {

std::string model_title(const std::string& model) {
  return model.starts_with("resnet") ? "ResNet-" + model.substr(6) : model;
}

std::string part_of_data(const RunConfig& config) {
  return config.data.limit_train ? string_printf(", %ld samples", *config.data.limit_train) : "";
}

}  // namespace

bool matches_paper(const Preset& preset, const RunConfig& config) {
  return config.dataset == preset.paper_flag("--dataset") && config.model == preset.paper_flag("--model") &&
         std::to_string(config.training.epochs) == preset.paper_flag("--epochs") && config.width == 1 &&
         config.depths.empty() && !config.data.limit_train && !config.data.limit_test &&
         !config.data.image_size;
}

std::string setup_title(const RunConfig& config) {
  const auto width = config.width == 1 ? "" : string_printf(" (width %g)", config.width);
  return dataset_title(config.dataset) + part_of_data(config) + ", " + model_title(config.model) + width +
         string_printf(", %ld epoch%s", config.training.epochs, config.training.epochs == 1 ? "" : "s");
}

ResultTable preset_table(const Preset& preset, const std::string& scale,
                         const std::vector<OptimizerComparison>& rows, const RunConfig& config,
                         const std::map<std::string, std::string>& rates, int64_t test_samples,
                         const std::vector<std::string>& deviations) {
  const bool has_numbers = std::any_of(preset.methods.begin(), preset.methods.end(),
                                       [](const PresetMethod& method) { return method.paper.has_value(); });
  const bool with_paper = has_numbers && matches_paper(preset, config);
  ResultTable table{.title = (preset.title.empty() ? "" : preset.title + ": ") + setup_title(config),
                    .header = {"method", "paper's name", "lr", "runs", "accuracy %", "binomial"},
                    .rows = {},
                    .alignment = "llrrrr",
                    .notes = preset.notes};
  const auto add_column = [&](const char* name, bool is_there) {
    if (!is_there) return;
    table.header.emplace_back(name);
    table.alignment += *name == '\0' ? 'l' : 'r';
  };
  add_column("paper", with_paper);
  add_column("test loss", true);
  add_column("paper", with_paper);
  for (const char* name : {"train loss", "seconds", "in optimizer", ""}) add_column(name, true);
  for (const auto& row : rows) {
    const auto* method = preset.find_method(row.optimizer);
    const PaperResult* paper = method != nullptr && method->paper ? &*method->paper : nullptr;
    const auto rate = rates.find(row.optimizer);
    TableRow cells{row.optimizer,
                   method == nullptr ? "-" : method->title,
                   rate == rates.end() ? "-" : rate->second,
                   std::to_string(row.runs),
                   cell(row.test_accuracy, 2, 100),
                   binomial_cell(row, test_samples)};
    const auto add_paper = [&](const char* format, double PaperResult::* mean, double PaperResult::* std) {
      if (with_paper)
        cells.push_back(paper == nullptr ? "-" : string_printf(format, paper->*mean, paper->*std));
    };
    add_paper("%.2f +- %.2f", &PaperResult::accuracy, &PaperResult::accuracy_std);
    cells.push_back(cell(row.test_loss, 3));
    add_paper("%.3f +- %.3f", &PaperResult::loss, &PaperResult::loss_std);
    cells.insert(cells.end(), {cell(row.train_loss, 3), cell(row.seconds, 1), cell(row.optimizer_seconds, 1),
                               row.diverged > 0 ? std::to_string(row.diverged) + " diverged" : ""});
    table.rows.push_back(std::move(cells));
  }
  if (has_numbers && !with_paper) {
    RunConfig paper;
    paper.dataset = preset.paper_flag("--dataset");
    paper.model = preset.paper_flag("--model");
    paper.training.epochs = to_integer(preset.paper_flag("--epochs"), "--epochs");
    table.notes.push_back("(scale: " + scale + "; the paper's numbers are not shown, because they are for " +
                          setup_title(paper) + ")");
  }
  if (!deviations.empty())
    table.notes.emplace_back("Deviations from the paper, and our choices where it does not specify a value:");
  for (const auto& sentence : deviations) table.notes.push_back("- " + sentence);
  return table;
}

}  // namespace tensorion::lab
