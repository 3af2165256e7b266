// Figures are drawn in Python, by `tensorion report`.
#pragma once

#include <filesystem>

namespace tensorion::lab {

// Draws what the folder's results show into its subfolder `report` and says where, or says how to do so: the
// program alone, without its Python package, cannot.
void draw_figures(const std::filesystem::path& folder);

}  // namespace tensorion::lab
