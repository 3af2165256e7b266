#include "lab/io/toml_file.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "lab/io/file.h"

namespace tensorion::lab {
namespace {

using nlohmann::ordered_json;

ordered_json to_json(const toml::node& node, const std::filesystem::path& path) {
  if (const auto* table = node.as_table()) {
    // toml++ sorts the keys by name; this restores the order of the file.
    std::vector<std::pair<toml::source_position, std::string>> keys;
    for (const auto& [key, value] : *table) keys.emplace_back(key.source().begin, key.str());
    std::sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    auto out = ordered_json::object();
    for (const auto& [position, key] : keys) out[key] = to_json(*table->get(key), path);
    return out;
  }
  if (const auto* array = node.as_array()) {
    auto out = ordered_json::array();
    for (const auto& value : *array) out.push_back(to_json(value, path));
    return out;
  }
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* value = node.as_integer()) return value->get();
  if (const auto* value = node.as_floating_point()) return value->get();
  if (const auto* value = node.as_boolean()) return value->get();
  throw FileError(path, "line " + std::to_string(node.source().begin.line) + ": dates are not supported");
}

std::string key_text(const std::string& key) {
  const bool is_bare = !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-';
  });
  return is_bare ? key : ordered_json(key).dump();
}

std::string value_text(const ordered_json& value) {
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const auto& [key, part] : value.items()) {
    if (part.is_null()) continue;  // TOML has no null
    text += text.empty() ? "" : ", ";
    if (value.is_object()) text += key_text(key) + " = ";
    text += value_text(part);
  }
  return value.is_object() ? "{ " + text + " }" : "[" + text + "]";
}

}  // namespace

ordered_json read_toml(const std::filesystem::path& path) {
  try {
    return to_json(toml::parse(read_file(path)), path);
  } catch (const toml::parse_error& error) {
    throw FileError(path, "line " + std::to_string(error.source().begin.line) +
                              " is not valid TOML: " + std::string(error.description()));
  }
}

std::string to_toml(const ordered_json& object) {
  std::string text;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_null()) text += key_text(key) + " = " + value_text(value) + "\n";
  }
  return text;
}

}  // namespace tensorion::lab
