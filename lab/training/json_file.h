// JSON files, with errors that name them.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>

namespace tensorion::lab {

// Takes a value apart.
using JsonReader = std::function<void(const nlohmann::json&)>;

// Calls `read` on the value in the file. What is not JSON, or not what `read` expects, is a DataError.
void read_json(const std::filesystem::path& path, const JsonReader& read);

// The same for the value on each line; errors name the line. A last line without its end is one that was half
// written, and is left out.
void read_json_lines(const std::filesystem::path& path, const JsonReader& read);

}  // namespace tensorion::lab
