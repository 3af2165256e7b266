// What a misspelled word was probably meant to be.
#pragma once

#include <string>
#include <vector>

namespace tensorion::lab {

// The candidate that takes the fewest edits (insert, delete, replace a letter, or swap two neighbours) to
// reach from the word; empty if even that is more than a third of its letters.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

// "; did you mean --optimizer?", or nothing if no candidate is near.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace tensorion::lab
