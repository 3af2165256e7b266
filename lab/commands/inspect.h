// `tensorion inspect`: shows the unfoldings of tensors and the cost of a step on each.
#pragma once

#include <CLI/App.hpp>

namespace tensorion::lab {

void add_inspect(CLI::App& program);

}  // namespace tensorion::lab
