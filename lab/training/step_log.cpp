#include "lab/training/step_log.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "lab/io/atomic_file.h"
#include "lab/io/file.h"
#include "lab/io/json_file.h"

namespace tensorion::lab {

StepLog::StepLog(std::filesystem::path file, RunIdentity identity)
    : file_(std::move(file)), identity_(std::move(identity)) {}

void StepLog::add(const StepMetrics& metrics) {
  auto line = to_json(identity_);
  line.update({{"step", metrics.step},
               {"epoch", metrics.epoch},
               {"loss", metrics.loss},
               {"lr", metrics.lr},
               {"gradient_norm", metrics.gradient_norm},
               {"images_per_second", metrics.images_per_second}});
  pending_ += line.dump() + '\n';
}

void StepLog::flush() {
  if (pending_.empty()) return;
  append_file(file_, pending_);
  pending_.clear();
}

void StepLog::truncate(int64_t last_step) {
  if (!std::filesystem::exists(file_)) return;
  std::string kept;
  const auto lines = read_lines(file_);
  size_t number = 0;
  read_json_lines(file_, [&](const nlohmann::json& line) {
    const auto& text = lines[number++];
    if (integer_from_json(line.at("step")) <= last_step) kept += text + '\n';
  });
  write_file(file_, kept);
}

}  // namespace tensorion::lab
