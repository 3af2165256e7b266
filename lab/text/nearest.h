// The name that was probably meant by one that is not known.
#pragma once

#include <string>
#include <vector>

namespace tensorion::lab {

// The known name with the fewest edits (a letter inserted, removed, replaced, or two neighbors swapped);
// empty if all need more than a third of the letters, and more than one.
std::string nearest_name(const std::string& name, const std::vector<std::string>& known);

// "; did you mean NAME?", or nothing if no known name is near.
std::string did_you_mean(const std::string& name, const std::vector<std::string>& known);

}  // namespace tensorion::lab
