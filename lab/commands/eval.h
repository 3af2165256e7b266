// `tensorion eval`: how well weights do on the test set, class by class.
#pragma once

#include <CLI/App.hpp>

namespace tensorion::lab {

void add_eval(CLI::App& program);

}  // namespace tensorion::lab
