// The flags that the commands which train have in common.
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
  RunConfig common;  // all other options, the same for every run
  std::filesystem::path out;
  bool resume = false;
  double checkpoint_every = 300;
};

// Adds all flags except --optimizer(s) and --seed(s). `flags` must outlive the parsing.
void add_run_flags(CLI::App& command, RunFlags& flags);

// All options in effect, as --config reads them.
std::string config_text(const CLI::App& command, const std::vector<RunConfig>& configs);

// Prints them if --print-config asks for it; the command then has nothing more to do.
bool printed_config(const CLI::App& command, const RunFlags& flags, const std::vector<RunConfig>& configs);

// The configuration of each method, in their order.
std::vector<RunConfig> make_configs(const RunFlags& flags, const std::vector<Method>& methods);

// Writes the options in effect into the folder's config.toml, from which --resume DIR goes on. One that is
// there is kept when results are resumed.
void write_config(const CLI::App& command, const RunFlags& flags, const std::vector<RunConfig>& configs,
                  const std::filesystem::path& folder);

// load_data, with a warning on the standard error if nothing can be learned from the data.
DatasetSplits load_and_warn(const RunConfig& config);

// The options of a run in `folder`. SIGINT, SIGTERM and SIGHUP stop it while there is an InterruptGuard.
RunOptions run_options(const RunFlags& flags, const std::filesystem::path& folder);

}  // namespace tensorion::lab
