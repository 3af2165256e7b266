#include "lab/commands/export.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <stdexcept>

namespace tensorion::lab {

void add_export(CLI::App& program) {
  program
      .add_subcommand("export", "Write the metrics of runs for TensorBoard, as CSV, or to Weights & Biases")
      ->allow_extras()
      ->callback([] {
        throw std::runtime_error("exports are made by the Python package's tensorion, not by this");
      });
}

}  // namespace tensorion::lab
