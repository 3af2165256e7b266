// `tensorion tightness`: measures how tight the relaxation and the balanced choice are on the momenta of a
// training run.
#pragma once

#include <CLI/App.hpp>

namespace tensorion::lab {

void add_tightness(CLI::App& program);

}  // namespace tensorion::lab
