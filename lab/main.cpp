// The entry point of the program `tensorion`: parses the command line and runs one subcommand.
#include <c10/util/Exception.h>
#include <torch/version.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "lab/commands/ablation.h"
#include "lab/commands/compare.h"
#include "lab/commands/eval.h"
#include "lab/commands/export.h"
#include "lab/commands/inspect.h"
#include "lab/commands/laplace.h"
#include "lab/commands/report.h"
#include "lab/commands/tightness.h"
#include "lab/commands/train.h"
#include "lab/text/nearest.h"
#include "lab/text/strings.h"
#include "lab/text/usage_error.h"
#include "lab/training/interrupt.h"
#include "lab/training/run.h"

namespace {

using tensorion::lab::did_you_mean;
namespace fs = std::filesystem;

// Returns the command line in reverse order, as CLI11 expects it. `--resume DIR` expands to
// `--resume --out DIR --config FILE`, where FILE is config.json or config.toml in DIR.
std::vector<std::string> arguments(int argc, char** argv) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    words.emplace_back(argv[i]);
    const bool has_folder = words.back() == "--resume" && i + 1 < argc && argv[i + 1][0] != '-';
    if (!has_folder) continue;
    const fs::path folder = argv[++i];
    const auto file = fs::exists(folder / "config.json") ? folder / "config.json" : folder / "config.toml";
    if (!fs::exists(file))
      throw tensorion::lab::UsageError("--resume " + folder.string() +
                                       ": expected a folder with config.json or config.toml, found neither");
    words.insert(words.end(), {"--out", folder.string(), "--config", file.string()});
  }
  std::reverse(words.begin(), words.end());
  return words;
}

// The error message for an unknown command, option or argument. It suggests the closest known name.
std::string unknown_argument(const CLI::App& program) {
  const auto used = program.get_subcommands();
  const auto& app = used.empty() ? program : *used.front();
  auto rest = app.remaining();
  if (rest.empty()) rest = program.remaining(true);
  const std::string word = rest.empty() ? "" : rest.front().substr(0, rest.front().find('='));
  std::vector<std::string> known;
  if (word.starts_with('-')) {
    for (const auto* option : app.get_options()) {
      for (const auto& name : option->get_lnames()) known.push_back("--" + name);
    }
    return "unknown option " + tensorion::lab::shortened(word) + did_you_mean(word, known);
  }
  if (!used.empty()) return "unexpected argument '" + tensorion::lab::shortened(word) + "'";
  for (const auto* command : program.get_subcommands({})) known.push_back(command->get_name());
  return "unknown command " + tensorion::lab::shortened(word) + did_you_mean(word, known);
}

// Prints the default values of list options as users type them: "1,2". CLI11 prints "[1,2]" or "1 2".
void show_lists_with_commas(CLI::App& program) {
  for (auto* command : program.get_subcommands({})) {
    for (auto* option : command->get_options()) {
      if (option->get_delimiter() != ',') continue;
      auto text = option->get_default_str();
      std::erase_if(text, [](char c) { return c == '[' || c == ']'; });
      std::replace(text.begin(), text.end(), ' ', ',');
      option->default_str(text);
    }
  }
}

// Turns CLI11's "--epochs: must be ..." into the sentence "--epochs must be ...".
std::string sentence(std::string what) {
  if (const auto colon = what.find(": must "); colon != std::string::npos) what.erase(colon, 1);
  return what;
}

}  // namespace

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
  show_lists_with_commas(program);

  // Exit status 2 means that the command line is invalid, and 1 any other error (see docs/reliability.md).
  const auto fail = [&](const std::string& what, int status = 1) {
    // Error messages of the library already start with the name of the function.
    const auto used = program.get_subcommands();
    if (!what.starts_with('['))
      std::cerr << "[tensorion" << (used.empty() ? "" : " " + used[0]->get_name()) << "] ";
    std::cerr << what << '\n';
    return status;
  };
  try {
    program.parse(arguments(argc, argv));
  } catch (const CLI::ExtrasError&) {
    return fail(unknown_argument(program), 2);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return program.exit(error);
    return fail(sentence(error.what()), 2);
  } catch (const tensorion::lab::Interrupted& error) {
    std::cerr << error.what() << "\nTo continue, run the same command with --resume.\n";
    return 128 + tensorion::lab::interrupt_signal();  // the shell's convention for signals
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
    return fail(std::string("cannot write to standard output: ") + std::strerror(errno));
  return 0;
}
