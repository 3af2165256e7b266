// Writing files, whole or not at all. (file.h reads files.)
#pragma once

#include <cstddef>
#include <string>

namespace tensorion::lab {

// Writes go to "<path>.tmp"; commit() flushes it to the disk and renames it to
// `path`. Until then, whatever is at `path` stays as it was, and a writer that
// is destroyed without commit leaves only that. Errors name the file and say
// what the system said. One writer a path at a time.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  // Replaces what was written at `offset`.
  void overwrite(size_t offset, const void* data, size_t bytes);
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
};

// Writes the text in place of the file, atomically.
void write_file(const std::string& path, const std::string& text);

// Appends the text to the file, which is created if necessary. If that fails, the file is left as it was. If
// the program is killed meanwhile, the file may end with a part of the text.
void append_file(const std::string& path, const std::string& text);

}  // namespace tensorion::lab
