#include "lab/commands/report.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <stdexcept>

namespace tensorion::lab {

void add_report(CLI::App& program) {
  program.add_subcommand("report", "Compare training runs: figures, one HTML page and a table")
      ->allow_extras()
      ->callback([] {
        throw std::runtime_error(
            "report is implemented in Python; run the `tensorion` command that the Python package installs");
      });
}

}  // namespace tensorion::lab
