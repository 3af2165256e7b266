// The metrics of a run, of each epoch and in total.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tensorion::lab {

struct EpochMetrics {
  int64_t epoch = 0;             // 1, 2, ...
  double lr = 0;                 // of the first param group in the epoch's last step
  double train_loss = 0;         // the mean over the epoch, as it was minimized (with label smoothing)
  double test_loss = 0;          // cross-entropy
  double test_accuracy = 0;      // in [0, 1]
  double seconds = 0;            // of training: without evaluation and checkpoints
  double optimizer_seconds = 0;  // the part of them inside the optimizer
  double data_seconds = 0;       // and that spent waiting for a batch
  // Of the averaged weights, if they are averaged.
  std::optional<double> ema_test_loss = {};
  std::optional<double> ema_test_accuracy = {};
};

// Which run the metrics are of.
struct RunIdentity {
  std::string run;
  std::string optimizer;
  int64_t seed = 0;
  std::string label = {};  // as in its configuration

  const std::string& method() const { return label.empty() ? optimizer : label; }
};

struct RunSummary {
  RunIdentity identity;
  bool diverged = false;
  std::string reason = {};  // why it diverged, if it did
  std::vector<EpochMetrics> epochs = {};
  int64_t skipped_steps = 0;  // because of gradients that were not finite
  int64_t parameters = 0;
  int64_t threads = 0;

  const EpochMetrics* final_epoch() const;  // null if there is no epoch
  const EpochMetrics* best_epoch() const;   // the first of those with the highest accuracy
  double seconds() const;                   // of all epochs
  double optimizer_seconds() const;
  double data_seconds() const;
};

nlohmann::ordered_json to_json(const RunIdentity& identity);

// Numbers that are not finite are null in JSON, and NaN when read back.
nlohmann::ordered_json to_json(const EpochMetrics& metrics);
EpochMetrics epoch_metrics_from_json(const nlohmann::json& json);

// Throws a json::exception if the value is not an integer.
int64_t integer_from_json(const nlohmann::json& value);

// One line of metrics.jsonl for each epoch.
std::string metrics_lines(const RunIdentity& identity, const std::vector<EpochMetrics>& epochs);

// summary.json, and the summary back from it, without its epochs.
nlohmann::ordered_json to_json(const RunSummary& summary);
RunSummary summary_from_json(const nlohmann::json& json);

}  // namespace tensorion::lab
