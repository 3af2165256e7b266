// Suggestions for misspelled names.
#pragma once

#include <string>
#include <vector>

namespace tensorion::lab {

// Returns the known name with the smallest edit distance (insertions, deletions, substitutions and swaps of
// adjacent letters). Returns an empty string if that distance is larger than a third of the length of `name`
// and larger than 1.
std::string nearest_name(const std::string& name, const std::vector<std::string>& known);

// Returns "; did you mean NAME?", or an empty string if no known name is close.
std::string did_you_mean(const std::string& name, const std::vector<std::string>& known);

}  // namespace tensorion::lab
