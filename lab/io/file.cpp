#include "lab/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace tensorion::lab {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& action, std::error_code error) {
  throw FileError(path, "cannot " + action + ": " + error.message());
}

[[noreturn]] void fail_errno(const fs::path& path, const std::string& action) {
  fail(path, action, {errno, std::generic_category()});
}

fs::file_type type_of(const fs::path& path) {
  std::error_code error;
  const auto type = fs::status(path, error).type();
  if (type == fs::file_type::none) fail(path, "access it", error);
  return type;
}

// Closes the file descriptor on destruction.
struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

}  // namespace

FileError::FileError(const fs::path& path, const std::string& what)
    : std::runtime_error("[tensorion.data] " + path.string() + ": " + what) {}

bool is_file(const fs::path& path) {
  const auto type = type_of(path);
  return type != fs::file_type::not_found && type != fs::file_type::directory;
}

bool is_folder(const fs::path& path) { return type_of(path) == fs::file_type::directory; }

std::string read_file(const fs::path& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.value < 0) fail_errno(path, "open the file");
  struct stat status{};
  if (::fstat(file.value, &status) != 0) fail_errno(path, "read the file");
  if (S_ISDIR(status.st_mode)) throw FileError(path, "expected a file, got a folder");
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t count = ::read(file.value, bytes.data() + filled, bytes.size() - filled);
    if (count < 0) {
      if (errno == EINTR) continue;
      fail_errno(path, "read the file");
    }
    if (count == 0) break;
    filled += static_cast<size_t>(count);
  }
  bytes.resize(filled);
  return bytes;
}

std::vector<std::string> read_lines(const fs::path& path) {
  const std::string text = read_file(path);
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    begin = end + 1;
  }
  return lines;
}

std::vector<FolderEntry> list_folder(const fs::path& path) {
  std::error_code error;
  std::vector<FolderEntry> entries;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.starts_with('.')) continue;
    std::error_code ignored;  // a dangling link counts as a file; opening it fails later
    entries.push_back({std::move(name), it->is_directory(ignored)});
  }
  if (error) fail(path, "list the folder", error);
  std::sort(entries.begin(), entries.end(),
            [](const FolderEntry& a, const FolderEntry& b) { return a.name < b.name; });
  return entries;
}

}  // namespace tensorion::lab
