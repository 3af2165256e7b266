// Reading and writing TOML, represented as JSON values.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tensorion::lab {

// Returns the contents of the file as an object whose keys are in the order of the file. Throws FileError
// with the line number if the file is not valid TOML or contains a date.
nlohmann::ordered_json read_toml(const std::filesystem::path& path);

// Returns the object as TOML, one "key = value" per line. Nested objects become inline tables; entries that
// are null are omitted.
std::string to_toml(const nlohmann::ordered_json& object);

}  // namespace tensorion::lab
