#include "lab/experiments/figures.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

namespace tensorion::lab {
namespace {

// Environment variable with the Python interpreter that started this program, if any. See
// python/tensorion_lab/cli.py.
constexpr char kPython[] = "TENSORION_PYTHON";

// Returns the exit code. Discards the standard output of the command, but not its standard error.
int run_quietly(std::vector<std::string> command) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (auto& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int error = posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (error != 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

}  // namespace

void draw_figures(const std::filesystem::path& folder) {
  std::cout << "results in " << folder.string() << '\n' << std::flush;
  const char* python = std::getenv(kPython);
  const bool drawn =
      python != nullptr && run_quietly({python, "-m", "tensorion_lab.report", folder.string()}) == 0;
  if (drawn) {
    std::cout << "figures in " << (folder / "report").string() << '\n';
  } else {
    std::cout << "to draw figures: tensorion report " << folder.string() << '\n';
  }
}

}  // namespace tensorion::lab
