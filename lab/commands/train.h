// `tensorion train`: one run.
#pragma once

#include <CLI/App.hpp>

namespace tensorion::lab {

void add_train(CLI::App& program);

}  // namespace tensorion::lab
