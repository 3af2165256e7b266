#include "lab/flags/flag_values.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>

#include "lab/flags/validators.h"

namespace tensorion::lab {

std::string find_value(const FlagValues& values, const std::string& name) {
  const auto found =
      std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == name; });
  return found == values.end() ? "" : found->second;
}

const std::vector<std::string>& scale_names() {
  static const std::vector<std::string> names{"paper", "small", "smoke"};
  return names;
}

void add_scale(CLI::App& command, std::string& scale) {
  command
      .add_option(
          "--scale", scale,
          "Size of the experiment: as in the paper, about an hour on two cores (small), or a minute (smoke). "
          "It sets the defaults of other flags, which --scale SIZE --help shows")
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

void before_help(CLI::App& command, const std::function<void()>& prepare) {
  command.formatter_fn([prepare](const CLI::App* app, std::string name, CLI::AppFormatMode mode) {
    prepare();
    return CLI::Formatter().make_help(app, std::move(name), mode);
  });
}

void show_defaults(CLI::App& command, const FlagValues& values) {
  std::set<std::string> shown;
  for (const auto& [name, value] : values) {
    if (!shown.insert(name).second) continue;
    auto* option = command.get_option(name);
    const auto text = option->get_description();
    option->default_str(value)->description(text.substr(0, text.find(" (default: ")));
  }
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
