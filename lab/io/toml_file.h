// TOML, as JSON values.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tensorion::lab {

// The file's table as an object, its keys in the order of the file. Throws FileError, with the line, if the
// file is not TOML or has dates.
nlohmann::ordered_json read_toml(const std::filesystem::path& path);

// The entries of an object, one "key = value" for each line. Objects inside it become inline tables; entries
// that are null are left out.
std::string to_toml(const nlohmann::ordered_json& object);

}  // namespace tensorion::lab
