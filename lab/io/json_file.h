// Reading and writing JSON files. Errors contain the path of the file.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

namespace tensorion::lab {

// A function that extracts the expected fields from a value. It may throw nlohmann::json::exception.
using JsonReader = std::function<void(const nlohmann::json&)>;

// Parses the file and calls `read` on the value. Throws FileError if the file is not valid JSON or if `read`
// throws a nlohmann::json::exception.
void read_json(const std::filesystem::path& path, const JsonReader& read);

// Does the same for each line of a JSON Lines file; errors contain the line number. A last line without a
// newline is skipped: the program that wrote it was interrupted.
void read_json_lines(const std::filesystem::path& path, const JsonReader& read);

// Converts an empty value to null.
template <typename T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

// Converts NaN and infinities, which JSON does not have, to null.
nlohmann::ordered_json finite_or_null(double value);

// Creates or replaces the file atomically. The JSON is indented by two spaces.
void write_json(const std::filesystem::path& path, const nlohmann::ordered_json& value);

}  // namespace tensorion::lab
