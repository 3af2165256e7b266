// Values of flags from a file, and back into one.
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

// Adds --config and --print-config. `flags` must outlive the parsing.
void add_config_flags(CLI::App& command, ConfigFlags& flags);
void add_dry_run_flag(CLI::App& command, ConfigFlags& flags);

// Sets each flag that the file has and the command line has not. The file is TOML, or JSON if its name ends
// with .json, such as a run's config.json, from which what is not an option is left out (see is_recorded in
// run_config.h). Keys are the flags' names, with - or _. A key that is not a flag of the command is an error
// that names the nearest one.
void apply_config(CLI::App& command, const std::filesystem::path& file);

// The values of all flags that have one, by their names with _: those of `configs` as far as they have them,
// as an object by method where they differ, else those given or the defaults.
nlohmann::ordered_json resolved_flags(const CLI::App& command, const std::vector<RunConfig>& configs);

}  // namespace tensorion::lab
