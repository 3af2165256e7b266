// Values for flags that the user did not give: what a preset is made of.
#pragma once

#include <CLI/App.hpp>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace tensorion::lab {

// {"--epochs", "25"}.
using FlagValues = std::vector<std::pair<std::string, std::string>>;

// paper, small, smoke.
const std::vector<std::string>& scale_names();
// The flag --scale; without it, `paper`.
void add_scale(CLI::App& command, std::string& scale);

// As if the command line had them, where it does not. Of a flag that comes several times the first counts.
void set_missing(CLI::App& command, const FlagValues& values);

// Checks of whole numbers: CLI11 reads what does not fit into 64 bits as the largest number that does.
CLI::Validator positive_count();
CLI::Validator non_negative_count();
CLI::Validator thread_count();

}  // namespace tensorion::lab
