// The metrics of a run: for each epoch, and a summary.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tensorion::lab {

struct EpochMetrics {
  int64_t epoch = 0;             // 1, 2, ...
  double lr = 0;                 // of the first param group in the last step of the epoch
  double train_loss = 0;         // mean over the epoch of the loss that is minimized (with label smoothing)
  double test_loss = 0;          // mean cross-entropy
  double test_accuracy = 0;      // in [0, 1]
  double seconds = 0;            // training time without evaluation and checkpoints
  double optimizer_seconds = 0;  // the part of `seconds` inside the optimizer
  double data_seconds = 0;       // the part of `seconds` spent waiting for batches
  // Metrics of the averaged weights, if there is an average.
  std::optional<double> ema_test_loss = {};
  std::optional<double> ema_test_accuracy = {};
};

// Identifies the run that metrics belong to.
struct RunIdentity {
  std::string run;
  std::string optimizer;
  int64_t seed = 0;
  std::string label = {};  // from the configuration; may be empty

  const std::string& method() const { return label.empty() ? optimizer : label; }
};

struct RunSummary {
  RunIdentity identity;
  bool diverged = false;
  std::string reason = {};  // why the run diverged; empty if it did not
  std::vector<EpochMetrics> epochs = {};
  int64_t skipped_steps = 0;  // steps skipped because of non-finite losses or gradients
  int64_t parameters = 0;
  int64_t threads = 0;

  const EpochMetrics* final_epoch() const;  // null if there are no epochs
  const EpochMetrics* best_epoch() const;   // the first epoch with the highest accuracy, or null
  double seconds() const;                   // the sum over all epochs
  double optimizer_seconds() const;
  double data_seconds() const;
};

nlohmann::ordered_json to_json(const RunIdentity& identity);

// Non-finite numbers are written as null and read back as NaN.
nlohmann::ordered_json to_json(const EpochMetrics& metrics);
EpochMetrics epoch_metrics_from_json(const nlohmann::json& json);

// Throws a json::exception if the value is not an integer.
int64_t integer_from_json(const nlohmann::json& value);

// Returns the contents of metrics.jsonl: one line per epoch.
std::string metrics_lines(const RunIdentity& identity, const std::vector<EpochMetrics>& epochs);

// Convert a summary to the contents of summary.json and back. The file does not contain the epochs.
nlohmann::ordered_json to_json(const RunSummary& summary);
RunSummary summary_from_json(const nlohmann::json& json);

}  // namespace tensorion::lab
