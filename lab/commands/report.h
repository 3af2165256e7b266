// `tensorion report`: figures and a page of results. Only its help is here: python/tensorion_lab/report makes
// reports, and the console script of the Python package starts it instead of this program.
#pragma once

#include <CLI/App.hpp>

namespace tensorion::lab {

void add_report(CLI::App& program);

}  // namespace tensorion::lab
