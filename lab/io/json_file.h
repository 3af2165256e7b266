// JSON files. Errors name the file.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>

namespace tensorion::lab {

// Takes a value apart; it may throw what nlohmann::json throws.
using JsonReader = std::function<void(const nlohmann::json&)>;

// Calls `read` on the value in the file. Throws FileError if the file is not JSON, or if `read` does not find
// what it expects.
void read_json(const std::filesystem::path& path, const JsonReader& read);

// Does the same for the value on each line; errors name the line. A last line without a newline was written
// only in part, and is left out.
void read_json_lines(const std::filesystem::path& path, const JsonReader& read);

// Writes the value, indented by two spaces, in place of the file; see AtomicFile.
void write_json(const std::filesystem::path& path, const nlohmann::ordered_json& value);

}  // namespace tensorion::lab
