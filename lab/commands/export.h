// `tensorion export`: only listed here for --help. It is implemented in python/tensorion_lab/export, and the
// console script of the Python package runs it without starting this program.
#pragma once

#include <CLI/App.hpp>

namespace tensorion::lab {

void add_export(CLI::App& program);

}  // namespace tensorion::lab
