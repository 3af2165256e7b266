// `tensorion report`: only listed here for --help. It is implemented in python/tensorion_lab/report, and the
// console script of the Python package runs it without starting this program.
#pragma once

#include <CLI/App.hpp>

namespace tensorion::lab {

void add_report(CLI::App& program);

}  // namespace tensorion::lab
