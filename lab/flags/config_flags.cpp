#include "lab/flags/config_flags.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lab/io/file.h"
#include "lab/io/json_file.h"
#include "lab/io/toml_file.h"
#include "lab/text/nearest.h"
#include "lab/text/strings.h"

namespace tensorion::lab {
namespace {

using nlohmann::ordered_json;

constexpr char kGroup[] = "Configuration";

// Returns false for flags that control what the command does with its configuration and are not part of it.
bool is_configurable(const CLI::Option& option) {
  static const std::set<std::string> others{"--help", "--config", "--print-config", "--dry-run", "--worker"};
  return !option.get_lnames().empty() && !others.contains("--" + option.get_lnames().front());
}

std::string key_of(const CLI::Option& option) {
  auto key = option.get_lnames().front();
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

ordered_json read_file_of(const std::filesystem::path& path) {
  ordered_json values;
  if (path.extension() == ".json") {
    read_json(path, [&](const nlohmann::json& value) { values = value; });
  } else {
    values = read_toml(path);
  }
  if (!values.is_object()) throw FileError(path, "expected an object of options, got " + values.dump());
  return values;
}

// Formats a value as on the command line: [0.9, 0.999] becomes "0.9,0.999", rows of numbers become
// "1,2,3;4,5,6", and an object becomes "sgd=0.1,adamw=1e-3". Returns an empty string for null.
std::string flag_text(const ordered_json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_structured()) return value.dump();
  const bool has_rows = value.is_array() && !value.empty() && value.front().is_array();
  std::string text;
  for (const auto& [key, part] : value.items()) {
    text += text.empty() ? "" : has_rows ? ";" : ",";
    if (value.is_object()) text += key + "=";
    text += flag_text(part);
  }
  return text;
}

// Parses a number or a boolean. Any other text is returned as a string.
ordered_json value_of(const std::string& text) {
  const auto value = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_number() || value.is_boolean() ? value : ordered_json(text);
}

ordered_json given_or_default(const CLI::Option& option) {
  const bool is_list = option.get_delimiter() != '\0';
  std::vector<std::string> texts = option.results();
  if (texts.empty() && !option.get_default_str().empty()) {
    texts = {option.get_default_str()};
    if (is_list) texts = split(texts[0], ',');
  }
  if (texts.empty()) return nullptr;
  if (!is_list) return value_of(texts.back());
  auto list = ordered_json::array();
  for (const auto& text : texts) list.push_back(value_of(text));
  return list;
}

bool is_empty(const ordered_json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.empty();  // null, or an array or an object without elements
}

}  // namespace

void add_config_flags(CLI::App& command, ConfigFlags& flags) {
  command
      .add_option("--config", flags.file,
                  "Read flags from a TOML file or from the config.json of a run. Flags on the command line "
                  "override the file")
      ->check(CLI::ExistingFile)
      ->group(kGroup);
  command
      .add_flag("--print-config", flags.print,
                "Print all options in effect in the format that --config reads, and exit")
      ->group(kGroup);
}

void add_dry_run_flag(CLI::App& command, ConfigFlags& flags) {
  command
      .add_flag("--dry-run", flags.dry_run,
                "Print all options, the size of the model, how every tensor is updated, and the time and "
                "memory of a "
                "step, without training")
      ->group(kGroup);
}

void apply_config(CLI::App& command, const std::filesystem::path& file) {
  std::vector<std::string> known;
  for (const auto* option : command.get_options()) {
    if (is_configurable(*option)) known.push_back(key_of(*option));
  }
  const auto values = read_file_of(file);
  for (const auto& [name, value] : values.items()) {
    auto key = name;
    std::replace(key.begin(), key.end(), '-', '_');
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      if (is_recorded(key)) continue;
      throw CLI::ConfigError(file.string() + ": unknown option " + name + did_you_mean(key, known));
    }
    auto* option = command.get_option(flag_name(key));
    const auto text = flag_text(value);
    if (!option->empty() || text.empty()) continue;
    try {
      option->add_result(text);
      option->run_callback();
    } catch (const CLI::ParseError& error) {
      throw CLI::ConfigError(file.string() + ": " + error.what());
    }
  }
}

ordered_json resolved_flags(const CLI::App& command, const std::vector<RunConfig>& configs) {
  std::vector<ordered_json> described;
  for (const auto& config : configs) described.push_back(to_json(config));
  ordered_json out;
  for (const auto* option : command.get_options()) {
    if (!is_configurable(*option)) continue;
    const auto key = key_of(*option);
    ordered_json values;  // by method
    bool is_same = true;
    for (size_t i = 0; i < configs.size(); ++i) {
      const auto value = described[i].find(key);
      is_same =
          is_same && value != described[i].end() && *value == described.front().value(key, ordered_json());
      if (value != described[i].end()) values[method_name(configs[i])] = *value;
    }
    auto value = values.is_null() ? given_or_default(*option) : is_same ? values.front() : values;
    if (!is_empty(value)) out[key] = std::move(value);
  }
  return out;
}

}  // namespace tensorion::lab
