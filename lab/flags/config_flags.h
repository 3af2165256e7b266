// Reads flag values from a configuration file and writes them to one.
#pragma once

#include <CLI/App.hpp>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/training/run_config.h"

namespace tensorion::lab {

struct ConfigFlags {
  std::filesystem::path file;
  bool print = false;
  bool dry_run = false;
};

// Adds --config and --print-config. `flags` must outlive the parsing of the command line.
void add_config_flags(CLI::App& command, ConfigFlags& flags);
void add_dry_run_flag(CLI::App& command, ConfigFlags& flags);

// Sets each flag that is in the file and not on the command line. The file is TOML, or JSON if its name ends
// with .json. The config.json of a run can be used, too: its entries that are not options are ignored (see
// is_recorded in run_config.h). Keys are the names of flags, with - or _. A key that is not a flag of the
// command is an error that suggests the nearest flag.
void apply_config(CLI::App& command, const std::filesystem::path& file);

// Returns the values of all flags that have one. Keys are the names of the flags with _ instead of -. Values
// come from `configs` if they contain the option, as an object by method if the methods differ. Otherwise
// they come from the command line or the defaults.
nlohmann::ordered_json resolved_flags(const CLI::App& command, const std::vector<RunConfig>& configs);

}  // namespace tensorion::lab
