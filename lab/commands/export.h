// `tensorion export`: known here so that it is listed; it is in the Python package.
#pragma once

#include <CLI/App.hpp>

namespace tensorion::lab {

void add_export(CLI::App& program);

}  // namespace tensorion::lab
