#include "lab/training/metrics.h"

#include <torch/version.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace tensorion::lab {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

double number(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

double sum(const std::vector<EpochMetrics>& epochs, double EpochMetrics::* quantity) {
  double sum = 0;
  for (const auto& epoch : epochs) sum += epoch.*quantity;
  return sum;
}

void add_average(ordered_json& out, const EpochMetrics& metrics) {
  if (metrics.ema_test_loss) out["ema_test_loss"] = *metrics.ema_test_loss;
  if (metrics.ema_test_accuracy) out["ema_test_accuracy"] = *metrics.ema_test_accuracy;
}

ordered_json scores(const EpochMetrics* metrics) {
  if (metrics == nullptr) return nullptr;
  ordered_json out{{"epoch", metrics->epoch},
                   {"train_loss", metrics->train_loss},
                   {"test_loss", metrics->test_loss},
                   {"test_accuracy", metrics->test_accuracy}};
  add_average(out, *metrics);
  return out;
}

std::optional<double> optional_number(const json& json, const char* key) {
  return json.contains(key) ? std::optional(number(json.at(key))) : std::nullopt;
}

}  // namespace

ordered_json to_json(const RunIdentity& identity) {
  ordered_json out{{"run", identity.run}, {"optimizer", identity.optimizer}};
  if (!identity.label.empty()) out["label"] = identity.label;
  out["seed"] = identity.seed;
  return out;
}

const EpochMetrics* RunSummary::final_epoch() const { return epochs.empty() ? nullptr : &epochs.back(); }

const EpochMetrics* RunSummary::best_epoch() const {
  const EpochMetrics* best = nullptr;
  for (const auto& epoch : epochs) {
    if (best == nullptr || epoch.test_accuracy > best->test_accuracy) best = &epoch;
  }
  return best;
}

double RunSummary::seconds() const { return sum(epochs, &EpochMetrics::seconds); }

double RunSummary::optimizer_seconds() const { return sum(epochs, &EpochMetrics::optimizer_seconds); }

double RunSummary::data_seconds() const { return sum(epochs, &EpochMetrics::data_seconds); }

ordered_json to_json(const EpochMetrics& metrics) {
  ordered_json out{{"epoch", metrics.epoch},
                   {"lr", metrics.lr},
                   {"train_loss", metrics.train_loss},
                   {"test_loss", metrics.test_loss},
                   {"test_accuracy", metrics.test_accuracy},
                   {"seconds", metrics.seconds},
                   {"optimizer_seconds", metrics.optimizer_seconds},
                   {"data_seconds", metrics.data_seconds}};
  add_average(out, metrics);
  return out;
}

int64_t integer_from_json(const json& value) { return value.get_ref<const json::number_integer_t&>(); }

EpochMetrics epoch_metrics_from_json(const json& json) {
  return {.epoch = integer_from_json(json.at("epoch")),
          .lr = number(json.at("lr")),
          .train_loss = number(json.at("train_loss")),
          .test_loss = number(json.at("test_loss")),
          .test_accuracy = number(json.at("test_accuracy")),
          .seconds = number(json.at("seconds")),
          .optimizer_seconds = number(json.at("optimizer_seconds")),
          .data_seconds = json.value("data_seconds", 0.0),
          .ema_test_loss = optional_number(json, "ema_test_loss"),
          .ema_test_accuracy = optional_number(json, "ema_test_accuracy")};
}

std::string metrics_lines(const RunIdentity& identity, const std::vector<EpochMetrics>& epochs) {
  std::string lines;
  for (const auto& epoch : epochs) {
    auto line = to_json(identity);
    line.update(to_json(epoch));
    lines += line.dump() + '\n';
  }
  return lines;
}

ordered_json to_json(const RunSummary& summary) {
  auto out = to_json(summary.identity);
  out["status"] = summary.diverged ? "diverged" : "finished";
  if (summary.diverged) out["reason"] = summary.reason;
  out["epochs"] = summary.epochs.size();
  out["final"] = scores(summary.final_epoch());
  out["best"] = scores(summary.best_epoch());
  out["seconds"] = summary.seconds();
  out["optimizer_seconds"] = summary.optimizer_seconds();
  out["data_seconds"] = summary.data_seconds();
  out["skipped_steps"] = summary.skipped_steps;
  out["parameters"] = summary.parameters;
  out["threads"] = summary.threads;
  out["version"] = TENSORION_VERSION;
  out["torch"] = TORCH_VERSION;
  return out;
}

RunSummary summary_from_json(const json& json) {
  RunSummary summary;
  summary.identity = {json.at("run").get<std::string>(), json.at("optimizer").get<std::string>(),
                      integer_from_json(json.at("seed")), json.value("label", "")};
  summary.diverged = json.at("status") == "diverged";
  summary.reason = json.value("reason", "");
  summary.skipped_steps = integer_from_json(json.at("skipped_steps"));
  summary.parameters = integer_from_json(json.at("parameters"));
  summary.threads = integer_from_json(json.at("threads"));
  return summary;
}

}  // namespace tensorion::lab
