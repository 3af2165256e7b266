// Reading files and folders. Errors contain the path. (atomic_file.h writes files.)
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace tensorion::lab {

// A file or folder cannot be read, or its contents are invalid. The message starts with its path.
class FileError : public std::runtime_error {
 public:
  FileError(const std::filesystem::path& path, const std::string& what);
};

// Return true if the path exists and is a file (or a folder). Throw if permissions do not allow finding out.
bool is_file(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

// Returns the bytes of the file.
std::string read_file(const std::filesystem::path& path);

// Returns the lines of the file, including empty ones, without their terminators (\n or \r\n).
std::vector<std::string> read_lines(const std::filesystem::path& path);

struct FolderEntry {
  std::string name;
  bool is_folder = false;
};

// Lists the folder, sorted bytewise by name, without hidden entries.
std::vector<FolderEntry> list_folder(const std::filesystem::path& path);

}  // namespace tensorion::lab
