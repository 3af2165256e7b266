// The flags that all training commands share.
#pragma once

#include <CLI/App.hpp>
#include <filesystem>
#include <vector>

#include "lab/flags/config_flags.h"
#include "lab/flags/optimizer_flags.h"
#include "lab/training/run.h"

namespace tensorion::lab {

struct RunFlags {
  ConfigFlags config;
  OptimizerFlags optimizer;
  std::set<std::string> given;  // names of the flags on the command line
  std::string device = "auto";
  RunConfig common;  // all other options, which are the same for every run
  std::filesystem::path out;
  bool resume = false;
  double checkpoint_every = 300;
};

// Adds all flags except --optimizer(s) and --seed(s). `flags` must outlive the parsing of the command line.
void add_run_flags(CLI::App& command, RunFlags& flags);

// Returns all options in effect in the format that --config reads.
std::string config_text(const CLI::App& command, const std::vector<RunConfig>& configs);

// Prints the options if --print-config is given. Returns true in that case, and the command then does nothing
// else.
bool printed_config(const CLI::App& command, const RunFlags& flags, const std::vector<RunConfig>& configs);

// Returns the configuration of each method, in the same order.
std::vector<RunConfig> make_configs(const RunFlags& flags, const std::vector<Method>& methods);

// Writes the options in effect to config.toml in the folder, which --resume DIR reads. If results are
// resumed, an existing config.toml is kept.
void write_config(const CLI::App& command, const RunFlags& flags, const std::vector<RunConfig>& configs,
                  const std::filesystem::path& folder);

// Calls load_data and prints a warning to standard error if nothing can be learned from the data.
DatasetSplits load_and_warn(const RunConfig& config);

// Returns the options of a run in `folder`. SIGINT, SIGTERM and SIGHUP stop the run while an InterruptGuard
// exists.
RunOptions run_options(const RunFlags& flags, const std::filesystem::path& folder);

}  // namespace tensorion::lab
