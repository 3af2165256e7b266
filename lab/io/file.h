// Reading files and folders. Errors name them. (atomic_file.h writes files.)
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace tensorion::lab {

// A file or folder, or something in it, is not as it should be. The message starts with its path.
class FileError : public std::runtime_error {
 public:
  FileError(const std::filesystem::path& path, const std::string& what);
};

// Whether there is such a file or folder; not being allowed to know is an error.
bool is_file(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

// The file's bytes.
std::string read_file(const std::filesystem::path& path);

// The file's lines without their ends (\n or \r\n); empty lines are kept.
std::vector<std::string> read_lines(const std::filesystem::path& path);

struct FolderEntry {
  std::string name;
  bool is_folder = false;
};

// What the folder holds, sorted by name (bytewise); hidden entries are left out.
std::vector<FolderEntry> list_folder(const std::filesystem::path& path);

}  // namespace tensorion::lab
