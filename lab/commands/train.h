// `tensorion train`: trains a model once.
#pragma once

#include <CLI/App.hpp>

namespace tensorion::lab {

void add_train(CLI::App& program);

}  // namespace tensorion::lab
