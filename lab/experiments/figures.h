// The figures of an experiment. `tensorion report`, which is written in Python, draws them.
#pragma once

#include <filesystem>

namespace tensorion::lab {

// Draws the figures of the results in a folder into its subfolder `report` and prints their paths. If this
// program was not started by its Python package, prints the command that draws them.
void draw_figures(const std::filesystem::path& folder);

}  // namespace tensorion::lab
