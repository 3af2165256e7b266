// Writing files atomically. (file.h reads files.)
#pragma once

#include <cstddef>
#include <string>

namespace tensorion::lab {

// Writes to "<path>.tmp". commit() flushes that file to disk and renames it to `path`; until then, a file at
// `path` is unchanged. The destructor removes the temporary file if commit() was not called. Errors contain
// the path and the system's error message. Each path may have only one writer at a time.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  // Overwrites bytes that were written before, from `offset` on.
  void overwrite(size_t offset, const void* data, size_t bytes);
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
};

// Creates or replaces the file atomically.
void write_file(const std::string& path, const std::string& text);

// Appends the text to the file and creates the file if necessary. If writing fails, the file is unchanged. If
// the program is killed while it writes, the file may end with a part of the text.
void append_file(const std::string& path, const std::string& text);

}  // namespace tensorion::lab
