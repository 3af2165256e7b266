// `tensorion inspect`: the unfoldings of tensors and what a step on each costs.
#pragma once

#include <CLI/App.hpp>

namespace tensorion::lab {

void add_inspect(CLI::App& program);

}  // namespace tensorion::lab
