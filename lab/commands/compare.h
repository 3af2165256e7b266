// `tensorion compare`: several optimizers on the same data, from the same weights.
#pragma once

#include <CLI/App.hpp>

namespace tensorion::lab {

void add_compare(CLI::App& program);

}  // namespace tensorion::lab
