// Default values for flags that are not on the command line. A preset consists of such values, with one list
// for each scale.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tensorion::lab {

// Pairs of a flag and its value, for example {{"--epochs", "25"}, {"--seeds", "0,1"}}.
using FlagValues = std::vector<std::pair<std::string, std::string>>;

// Returns the first value with this name, or an empty string if there is none.
std::string find_value(const FlagValues& values, const std::string& name);

// Returns paper, small and smoke.
const std::vector<std::string>& scale_names();
// Adds the flag --scale. `scale` holds its default.
void add_scale(CLI::App& command, std::string& scale);

// Sets each flag that is not on the command line, as if it were given there. If `values` contains a flag
// several times, the first value is used.
void set_missing(CLI::App& command, const FlagValues& values);

// Returns the names of the flags on the command line.
std::set<std::string> given_flags(const CLI::App& command);

// Calls `prepare` before --help prints. The other flags of the command line are parsed by then, so the help
// can show defaults that depend on them.
void before_help(CLI::App& command, const std::function<void()>& prepare);

// Makes --help show these values as the defaults. If `values` contains a flag several times, the first value
// is used.
void show_defaults(CLI::App& command, const FlagValues& values);

}  // namespace tensorion::lab
