// The flags that commands which train have in common, and the configurations they ask for.
#pragma once

#include <CLI/App.hpp>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lab/commands/flag_values.h"
#include "lab/training/run.h"

namespace tensorion::lab {

// An optimizer under a name of its own, with values of its options (by their names in to_json) that come
// before those of the command line: {"tensorion-sgd", "tensorion", {{"fallback", "sgd"}}}.
struct Method {
  std::string name;
  std::string optimizer;
  FlagValues options = {};
};

struct RunFlags {
  // The options of the optimizer by flag, as given: "0.1", or "sgd=0.1,adamw=1e-3" for one each, by the
  // methods' names.
  std::map<std::string, std::string> optimizer;
  // All else, for every run alike.
  RunConfig common;
  std::filesystem::path out;
  bool resume = false;
  double checkpoint_every = 300;
};

// The flags but --optimizer(s) and --seed(s). `flags` must outlive the parsing.
void add_run_flags(CLI::App& command, RunFlags& flags);

// The configuration for each method, in their order. A flag that none of them has is an error.
std::vector<RunConfig> make_configs(const RunFlags& flags, const std::vector<Method>& methods);

// Calls `train` while Ctrl-C and SIGTERM end it by a checkpoint; then says how to go on and throws
// CLI::RuntimeError with the shell's exit code for the signal.
void run_interruptible(const std::function<void()>& train);

// For a run in `folder`, as the flags say.
RunOptions run_options(const RunFlags& flags, const std::filesystem::path& folder);

}  // namespace tensorion::lab
