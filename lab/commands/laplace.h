// `tensorion laplace`: computes the smallest eigenpair of a high-dimensional Laplacian in tensor-train form.
#pragma once

#include <CLI/App.hpp>

namespace tensorion::lab {

void add_laplace(CLI::App& program);

}  // namespace tensorion::lab
