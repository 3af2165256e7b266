#include "lab/io/json_file.h"

#include <cmath>
#include <string>

#include "lab/io/atomic_file.h"
#include "lab/io/file.h"

namespace tensorion::lab {
namespace {

using nlohmann::json;

void parse_text(const std::filesystem::path& path, const std::string& where, std::string_view text,
                const JsonReader& read) {
  try {
    read(json::parse(text));
  } catch (const json::exception& error) {
    throw FileError(path, where + "not valid: " + error.what());
  }
}

}  // namespace

void read_json(const std::filesystem::path& path, const JsonReader& read) {
  parse_text(path, "", read_file(path), read);
}

void read_json_lines(const std::filesystem::path& path, const JsonReader& read) {
  const std::string text = read_file(path);
  size_t number = 0, begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    parse_text(path, "line " + std::to_string(++number) + " is ",
               std::string_view(text).substr(begin, end - begin), read);
  }
}

nlohmann::ordered_json finite_or_null(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

void write_json(const std::filesystem::path& path, const nlohmann::ordered_json& value) {
  write_file(path, value.dump(2) + '\n');
}

}  // namespace tensorion::lab
