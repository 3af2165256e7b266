#include "lab/io/atomic_file.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

namespace tensorion::lab {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what) {
  const int error = errno;
  TORCH_CHECK(false, "[tensorion.write] cannot ", what, " ", path, ": ", std::strerror(error));
}

// Returns true if all bytes were written. Otherwise errno holds the reason.
bool write_all(int descriptor, const void* data, size_t bytes) {
  const auto* rest = static_cast<const char*>(data);
  while (bytes > 0) {
    // Linux writes at most 2 GiB per call.
    const ssize_t written = ::write(descriptor, rest, std::min<size_t>(bytes, size_t{1} << 30));
    if (written < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    rest += written;
    bytes -= static_cast<size_t>(written);
  }
  return true;
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".tmp") {
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(path_, "create");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  if (!write_all(descriptor_, data, bytes)) fail(path_, "write");
}

void AtomicFile::overwrite(size_t offset, const void* data, size_t bytes) {
  const off_t end = ::lseek(descriptor_, 0, SEEK_CUR);
  if (end < 0 || ::lseek(descriptor_, static_cast<off_t>(offset), SEEK_SET) < 0) fail(path_, "write");
  write(data, bytes);
  if (::lseek(descriptor_, end, SEEK_SET) < 0) fail(path_, "write");
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail(path_, "write");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_, "rename the temporary file of");
  ::close(descriptor_);
  descriptor_ = -1;
  // The rename is durable only after the folder is synced as well.
  const auto folder = std::filesystem::path(path_).parent_path();
  const int directory = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  ::fsync(directory);
  ::close(directory);
}

void write_file(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

void append_file(const std::string& path, const std::string& text) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) fail(path, "open");
  const off_t before = ::lseek(descriptor, 0, SEEK_END);
  bool done = before >= 0 && write_all(descriptor, text.data(), text.size());
  int error = errno;
  if (!done && before >= 0 && ::ftruncate(descriptor, before) != 0) error = errno;
  if (::close(descriptor) != 0 && done) {
    done = false;
    error = errno;
  }
  errno = error;
  if (!done) fail(path, "write");
}

}  // namespace tensorion::lab
