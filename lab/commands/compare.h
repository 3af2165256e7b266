// `tensorion compare`: several optimizers on the same data, from the same weights; and `tensorion ablation`,
// the same for all unfoldings as in the paper.
#pragma once

#include <CLI/App.hpp>

namespace tensorion::lab {

void add_compare(CLI::App& program);
void add_ablation(CLI::App& program);

}  // namespace tensorion::lab
