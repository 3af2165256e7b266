// `tensorion compare`: compares several optimizers on the same data, starting from the same weights.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "lab/experiments/presets.h"
#include "lab/flags/run_flags.h"
#include "lab/training/rate_search.h"

namespace tensorion::lab {

void add_compare(CLI::App& program);

// The declarations below are shared with `tensorion ablation`.

struct CompareOptions {
  RunFlags flags;
  std::vector<std::string> optimizers;  // if empty: all methods of the preset, or all optimizers
  std::vector<int64_t> seeds = {0};
  int64_t jobs = 1;        // number of processes that share the runs
  bool is_worker = false;  // true in a process that --jobs started
  bool grid = false;       // first search a learning rate for every method
  RateSearchOptions search;
  std::string scale = "paper";
  std::string preset_name;
  std::string reference;  // method to compare the others with; may be empty
};

// `options` must outlive the parsing of the command line.
void add_comparison_flags(CLI::App& command, CompareOptions& options);

// Makes --help show the defaults of the preset.
void show_preset_defaults(CLI::App& command, const CompareOptions& options, const Preset& preset);

// `preset` may be null.
void run_comparison(CLI::App& command, CompareOptions& options, const Preset* preset);

}  // namespace tensorion::lab
