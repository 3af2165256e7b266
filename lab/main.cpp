// The program `tensorion`, one subcommand for each job.
#include <c10/util/Exception.h>
#include <torch/version.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cerrno>
#include <cstring>
#include <exception>
#include <iostream>

#include "lab/commands/ablation.h"
#include "lab/commands/compare.h"
#include "lab/commands/eval.h"
#include "lab/commands/export.h"
#include "lab/commands/inspect.h"
#include "lab/commands/laplace.h"
#include "lab/commands/report.h"
#include "lab/commands/tightness.h"
#include "lab/commands/train.h"
#include "lab/text/usage_error.h"
#include "lab/training/interrupt.h"
#include "lab/training/run.h"

int main(int argc, char** argv) {
  CLI::App program{"Tensorion: Muon for tensors of any order"};
  program.name("tensorion");
  program.require_subcommand(0, 1);
  program.set_version_flag("--version", "tensorion " TENSORION_VERSION " (torch " TORCH_VERSION ")");
  tensorion::lab::add_train(program);
  tensorion::lab::add_compare(program);
  tensorion::lab::add_eval(program);
  tensorion::lab::add_ablation(program);
  tensorion::lab::add_laplace(program);
  tensorion::lab::add_tightness(program);
  tensorion::lab::add_inspect(program);
  tensorion::lab::add_report(program);
  tensorion::lab::add_export(program);

  // Status 2: the command line is wrong. Status 1: anything else is. docs/reliability.md has the rule.
  const auto fail = [&](const std::string& what, int status = 1) {
    // Errors of the library already name the function they come from.
    const auto used = program.get_subcommands();
    if (!what.starts_with('[') && !used.empty()) std::cerr << "[tensorion " << used[0]->get_name() << "] ";
    std::cerr << what << '\n';
    return status;
  };
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : 2;
  } catch (const tensorion::lab::Interrupted& error) {
    std::cerr << error.what() << "\nTo go on, run the same command with --resume.\n";
    return 128 + tensorion::lab::interrupt_signal();  // as a shell reports a signal
  } catch (const tensorion::lab::UsageError& error) {
    return fail(error.what(), 2);
  } catch (const c10::Error& error) {
    return fail(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return fail(error.what());
  }
  if (program.get_subcommands().empty()) {
    std::cerr << program.help();
    return 2;
  }
  if (!std::cout.flush())
    return fail(std::string("cannot write to the standard output: ") + std::strerror(errno));
  return 0;
}
