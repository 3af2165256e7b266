#include "lab/flags/flag_values.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>

#include "lab/flags/validators.h"

namespace tensorion::lab {

const std::vector<std::string>& scale_names() {
  static const std::vector<std::string> names{"paper", "small", "smoke"};
  return names;
}

void add_scale(CLI::App& command, std::string& scale) {
  command
      .add_option(
          "--scale", scale,
          "Size of the experiment: the paper's, an hour on two cores (small), a minute (smoke). Other "
          "flags override it; defaults shown here are those of paper")
      ->check(one_of(scale_names()))
      ->capture_default_str();
}

std::set<std::string> given_flags(const CLI::App& command) {
  std::set<std::string> names;
  for (const auto* option : command.get_options()) {
    if (!option->empty() && !option->get_lnames().empty()) names.insert("--" + option->get_lnames().front());
  }
  return names;
}

void show_defaults(CLI::App& command, const FlagValues& values) {
  for (const auto& [name, value] : values) command.get_option(name)->default_str(value);
}

void set_missing(CLI::App& command, const FlagValues& values) {
  for (const auto& [name, value] : values) {
    auto* option = command.get_option(name);
    if (!option->empty()) continue;
    option->add_result(value);
    option->run_callback();
  }
}

}  // namespace tensorion::lab
