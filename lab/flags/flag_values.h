// Values for flags that the user did not give. A preset is made of them, one list for each scale.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tensorion::lab {

// For example {{"--epochs", "25"}, {"--seeds", "0,1"}}.
using FlagValues = std::vector<std::pair<std::string, std::string>>;

// paper, small, smoke.
const std::vector<std::string>& scale_names();
// Adds the flag --scale. `scale` holds its default.
void add_scale(CLI::App& command, std::string& scale);

// Sets each flag that is not on the command line, as if it were. If `values` has a flag several times, the
// first value counts.
void set_missing(CLI::App& command, const FlagValues& values);

// The names of the flags that the command line has.
std::set<std::string> given_flags(const CLI::App& command);

// Calls `prepare` when --help is asked for: the other flags of the command line have their values by then, so
// that the help can show the defaults that go with them.
void before_help(CLI::App& command, const std::function<void()>& prepare);

// Makes --help show these values as the defaults. If `values` has a flag several times, the first value
// counts.
void show_defaults(CLI::App& command, const FlagValues& values);

}  // namespace tensorion::lab
