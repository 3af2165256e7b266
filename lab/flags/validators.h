// Checks of the values of flags.
#pragma once

#include <CLI/App.hpp>

namespace tensorion::lab {

// Whole numbers. The upper limit is needed because CLI11 reads a number that does not fit into 64 bits as the
// largest one that does.
CLI::Validator positive_count();
CLI::Validator non_negative_count();
CLI::Validator thread_count();

}  // namespace tensorion::lab
