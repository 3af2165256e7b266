// Validators for the values of flags. Their messages continue the name of the flag: "--epochs must be an
// integer from 1 to 2^53, got '0'".
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace tensorion::lab {

// Accept integers of at least 1 or at least 0, respectively, and at most 2^53.
CLI::Validator positive_count();
CLI::Validator non_negative_count();
// Accepts integers from `smallest` to `largest`.
CLI::Validator whole_number(int64_t smallest, int64_t largest);

// Accept finite numbers that are positive or non-negative, respectively.
CLI::Validator positive_number();
CLI::Validator non_negative_number();
// Accepts numbers in the half-open interval [smallest, end).
CLI::Validator number_in(double smallest, double end);

// Returns the maximum number of threads: four per core, and at least 64, so that a run from a larger machine
// can be repeated.
int64_t max_threads();
CLI::Validator thread_count();

// Accepts one of the names.
CLI::Validator one_of(const std::vector<std::string>& names);

// Accepts paths in UTF-8, which can be stored in JSON.
CLI::Validator utf8_path();

}  // namespace tensorion::lab
