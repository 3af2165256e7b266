// `tensorion ablation`: compares all unfoldings of the kernels, as in the paper.
#pragma once

#include <CLI/App.hpp>

namespace tensorion::lab {

void add_ablation(CLI::App& program);

}  // namespace tensorion::lab
