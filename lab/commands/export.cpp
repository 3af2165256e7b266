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
        throw std::runtime_error(
            "export is implemented in Python; run the `tensorion` command that the Python package installs");
      });
}

}  // namespace tensorion::lab
