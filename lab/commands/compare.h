// `tensorion compare`: several optimizers on the same data, from the same weights.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "lab/experiments/presets.h"
#include "lab/flags/run_flags.h"
#include "lab/training/rate_search.h"

namespace tensorion::lab {

void add_compare(CLI::App& program);

// What `tensorion ablation` shares with it:

struct CompareOptions {
  RunFlags flags;
  std::vector<std::string> optimizers;  // if empty, all methods of the preset, or all optimizers
  std::vector<int64_t> seeds = {0};
  int64_t jobs = 1;        // processes that share the runs
  bool is_worker = false;  // one of those that --jobs started
  bool grid = false;       // search a learning rate for every method first
  RateSearchOptions search;
  std::string scale = "paper";
  std::string preset_name;
  std::string reference;  // the method that others are compared with; empty: none
};

// `options` must outlive the parsing.
void add_comparison_flags(CLI::App& command, CompareOptions& options);

// Makes --help show the defaults that go with the preset.
void show_preset_defaults(CLI::App& command, const CompareOptions& options, const Preset& preset);

// `preset` may be null.
void run_comparison(CLI::App& command, CompareOptions& options, const Preset* preset);

}  // namespace tensorion::lab
