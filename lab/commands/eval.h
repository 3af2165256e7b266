// `tensorion eval`: evaluates weights on the test set, with a confusion matrix.
#pragma once

#include <CLI/App.hpp>

namespace tensorion::lab {

void add_eval(CLI::App& program);

}  // namespace tensorion::lab
