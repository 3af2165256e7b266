// Checks of the values of flags. What they return completes the flag's name to a sentence: "--epochs must be
// a whole number of at least 1, got 0".
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace tensorion::lab {

// Whole numbers of at least 1, or 0, and at most 2^53.
CLI::Validator positive_count();
CLI::Validator non_negative_count();
// Whole numbers from `smallest` to `largest`.
CLI::Validator whole_number(int64_t smallest, int64_t largest);

// Numbers that are finite and larger than 0, or not smaller.
CLI::Validator positive_number();
CLI::Validator non_negative_number();
// Numbers from `smallest` up to, but not including, `end`.
CLI::Validator number_in(double smallest, double end);

// How many threads may be asked for: four for each of the machine's cores, and at least 64, so that a run of
// a larger machine can be repeated.
int64_t max_threads();
CLI::Validator thread_count();

// One of the names.
CLI::Validator one_of(const std::vector<std::string>& names);

// A path that JSON can hold.
CLI::Validator utf8_path();

}  // namespace tensorion::lab
