// The results of `tensorion compare`: the summary and the tables of all runs in its folder.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/experiments/presets.h"
#include "lab/training/run_config.h"

namespace tensorion::lab {

struct CompareResults {
  std::filesystem::path folder;
  const RunConfig& config;  // the configuration of any run
  int64_t test_samples;
  std::string reference;          // method to compare the others with; may be empty
  nlohmann::ordered_json search;  // result of the learning-rate search; null if there was no search
  const Preset* preset;           // may be null
  std::string scale;
  std::vector<std::string> deviations;  // deviations from the paper's experiment
};

// Writes summary.json and prints the tables.
void write_results(const CompareResults& results);

}  // namespace tensorion::lab
