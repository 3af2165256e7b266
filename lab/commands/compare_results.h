// The end of `tensorion compare`: the summary and the tables of all runs in its folder.
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
  const RunConfig& config;  // of any of the runs
  int64_t test_samples;
  std::string reference;          // the method that others are compared with; empty: none
  nlohmann::ordered_json search;  // the search for learning rates; null: none
  const Preset* preset;           // may be null
  std::string scale;
  std::vector<std::string> deviations;  // from the paper
};

// Writes summary.json and prints the tables.
void write_results(const CompareResults& results);

}  // namespace tensorion::lab
