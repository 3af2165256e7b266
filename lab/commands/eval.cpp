#include "lab/commands/eval.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "lab/experiments/figures.h"
#include "lab/flags/run_flags.h"
#include "lab/io/file.h"
#include "lab/io/json_file.h"
#include "lab/models/models.h"
#include "lab/models/state_dict.h"
#include "lab/text/result_table.h"
#include "lab/text/strings.h"
#include "lab/text/usage_error.h"
#include "lab/training/comparison.h"
#include "lab/training/device.h"
#include "lab/training/evaluation.h"

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;

// Up to kMaxMatrixClasses classes, the whole confusion matrix is printed. For more classes, its
// kListedConfusions largest entries are printed.
constexpr int64_t kMaxMatrixClasses = 20;
constexpr int64_t kListedConfusions = 15;

struct EvalOptions {
  RunFlags flags;
  // Options of training runs, which eval ignores. They are here because config.json contains them.
  std::string optimizer;
  std::string label;
  int64_t seed = 0;
};

// Returns true if eval uses this flag of training runs.
bool is_used(const std::string& flag) {
  static const std::set<std::string> used{
      "--help",  "--config",  "--dataset", "--data", "--image-size",   "--limit-test", "--transpose",
      "--model", "--width",   "--depths",  "--stem", "--weights",      "--batch-size", "--device",
      "--amp",   "--threads", "--workers", "--out",  "--channels-last"};
  return used.contains(flag);
}

struct Confusion {
  int64_t actual;
  int64_t predicted;
  int64_t count;
};

std::string percent(double part, double whole) {
  return whole > 0 ? string_printf("%.1f", 100 * part / whole) : "-";
}

ResultTable matrix_table(const at::Tensor& confusion, const std::vector<std::string>& classes) {
  ResultTable table{.title = "Confusion matrix: images by true class (rows) and predicted class (columns)",
                    .header = {"", "class"},
                    .rows = {},
                    .alignment = "rl"};
  const auto counts = confusion.accessor<int64_t, 2>();
  const int64_t n = confusion.size(0);
  for (int64_t j = 0; j < n; ++j) table.header.push_back(std::to_string(j));
  table.header.insert(table.header.end(), {"recall %", "precision %"});
  table.alignment.append(n + 2, 'r');
  const auto predicted = confusion.sum(0), actual = confusion.sum(1);
  for (int64_t i = 0; i < n; ++i) {
    TableRow row{std::to_string(i), classes[i]};
    for (int64_t j = 0; j < n; ++j) row.push_back(std::to_string(counts[i][j]));
    const auto correct = static_cast<double>(counts[i][i]);
    row.push_back(percent(correct, actual[i].item<double>()));
    row.push_back(percent(correct, predicted[i].item<double>()));
    table.rows.push_back(std::move(row));
  }
  return table;
}

ResultTable confusions_table(const at::Tensor& confusion, const std::vector<std::string>& classes) {
  const auto counts = confusion.accessor<int64_t, 2>();
  std::vector<Confusion> all;
  for (int64_t i = 0; i < confusion.size(0); ++i) {
    for (int64_t j = 0; j < confusion.size(1); ++j) {
      if (i != j && counts[i][j] > 0) all.push_back({i, j, counts[i][j]});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Confusion& a, const Confusion& b) { return a.count > b.count; });
  ResultTable table{.title = "Most frequent confusions",
                    .header = {"true class", "predicted class", "images"},
                    .rows = {},
                    .alignment = "llr",
                    .notes = {"(evaluation.json has the whole matrix)"}};
  for (size_t i = 0; i < std::min<size_t>(all.size(), kListedConfusions); ++i) {
    table.rows.push_back({classes[all[i].actual], classes[all[i].predicted], std::to_string(all[i].count)});
  }
  return table;
}

nlohmann::ordered_json to_json(const EvalOptions& options, const Evaluation& result,
                               const DatasetSplits& data) {
  auto rows = nlohmann::ordered_json::array();
  for (const auto& row : result.confusion.unbind(0)) {
    const auto* begin = row.const_data_ptr<int64_t>();
    rows.push_back(std::vector<int64_t>(begin, begin + row.size(0)));
  }
  return {{"weights", options.flags.common.weights},
          {"dataset", options.flags.common.dataset},
          {"model", options.flags.common.model},
          {"test_samples", data.test.count()},
          {"test_accuracy", result.accuracy},
          {"test_loss", result.loss},
          {"class_names", data.classes},
          {"confusion", rows}};
}

// Returns the folder of the run that wrote the weights, or an empty path if there is no config.json next to
// them. Flags that are not given are taken from that file.
fs::path run_folder(const fs::path& weights) {
  const auto folder = weights.parent_path();
  return is_file(folder / "config.json") ? (folder.empty() ? fs::path(".") : folder) : fs::path();
}

// Used if there is no config.json. Infers the model from the names and shapes of the weights and reads the
// data set from the metadata.
void take_flags_from_weights(CLI::App& command, const std::string& path) {
  if (!command.get_option("--model")->empty()) return;
  const auto file = read_weights(path);
  const auto words = split(recognize_model(file.tensors), ' ');
  FlagValues values;
  for (size_t i = 0; i + 1 < words.size(); i += 2) values.emplace_back(words[i], words[i + 1]);
  if (const auto dataset = file.metadata.find("dataset"); dataset != file.metadata.end())
    values.emplace_back("--dataset", dataset->second);
  if (values.empty()) return;
  std::cerr << "flags inferred from the weights:";
  for (const auto& [flag, value] : values) {
    if (command.get_option(flag)->empty()) std::cerr << ' ' << flag << ' ' << value;
  }
  std::cerr << '\n';
  set_missing(command, values);
}

void evaluate_weights(CLI::App& command, EvalOptions& options) {
  auto& flags = options.flags;
  for (const auto& flag : given_flags(command)) {
    if (!is_used(flag)) throw UsageError(flag + " is an option of training and cannot be used with eval");
  }
  auto& config = flags.common;
  const auto folder = run_folder(config.weights);
  const bool has_device = !command.get_option("--device")->empty();
  if (!flags.config.file.empty()) {
    apply_config(command, flags.config.file);
  } else if (!folder.empty()) {
    apply_config(command, folder / "config.json");
  } else {
    take_flags_from_weights(command, config.weights);
  }
  const auto device = resolve_device(has_device ? flags.device : "auto");
  config.training.device = device;
  config.data.limit_train = 1;  // the training split is not used
  config.data.validation = std::nullopt;
  at::set_num_threads(static_cast<int>(config.threads));
  const auto data = load_data(config);
  auto fresh = config;
  fresh.weights.clear();
  const auto model = make_model(fresh, data);
  const auto reinitialized = load_weights(*model, config.weights);
  TORCH_CHECK_VALUE(reinitialized.empty(), config.weights, " must have a head for the ", data.classes.size(),
                    " classes of ", config.dataset,
                    ", but its head is missing or has another number of classes");
  const auto result = evaluate(*model, test_loader(config, data), device, config.training.amp);

  std::cout << string_printf("accuracy %.2f %% +- %.2f (binomial), loss %.4f on %ld test images\n\n",
                             100 * result.accuracy, 100 * binomial_error(result.accuracy, data.test.count()),
                             result.loss, data.test.count());
  const bool is_small = static_cast<int64_t>(data.classes.size()) <= kMaxMatrixClasses;
  print_table(std::cout, is_small ? matrix_table(result.confusion, data.classes)
                                  : confusions_table(result.confusion, data.classes));
  const auto out = flags.out.empty() ? folder : flags.out;
  if (out.empty()) {
    std::cout << "(--out DIR saves the results as evaluation.json, with a figure)\n";
    return;
  }
  fs::create_directories(out);
  write_json(out / "evaluation.json", to_json(options, result, data));
  draw_figures(out);
}

}  // namespace

void add_eval(CLI::App& program) {
  const auto options = std::make_shared<EvalOptions>();
  auto* command = program.add_subcommand("eval",
                                         "Evaluate weights on the test set: accuracy, loss and confusion "
                                         "matrix. Flags default to the config.json next to the weights");
  add_run_flags(*command, options->flags);
  command->add_option("--optimizer", options->optimizer);
  command->add_option("--label", options->label);
  command->add_option("--seed", options->seed);
  // All flags of training are defined, because config.json contains them, but those that eval ignores are
  // hidden.
  for (auto* option : command->get_options()) {
    if (!option->get_lnames().empty() && !is_used("--" + option->get_lnames().front())) option->group("");
  }
  command->get_option("--weights")->required()->description("The safetensors file to evaluate");
  command->callback([command, options] { evaluate_weights(*command, *options); });
}

}  // namespace tensorion::lab
