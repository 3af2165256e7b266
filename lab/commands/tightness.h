// `tensorion tightness`: how tight the relaxation and the balanced choice are on the momenta of a training.
#pragma once

#include <CLI/App.hpp>

namespace tensorion::lab {

void add_tightness(CLI::App& program);

}  // namespace tensorion::lab
