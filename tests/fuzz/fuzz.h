// Helpers of the fuzz targets.
#pragma once

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace tensorion::fuzz {

// Reports a finding: a property that must hold does not.
[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "finding: %s\n", what.c_str());
  std::abort();
}

inline void expect(bool condition, const std::string& what) {
  if (!condition) fail(what);
}

inline std::string text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// A file in memory with a path that parsers can open.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    expect(descriptor_ >= 0, "memfd_create failed");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void write(const uint8_t* data, size_t size) const {
    expect(::ftruncate(descriptor_, 0) == 0 &&
               ::pwrite(descriptor_, data, size, 0) == static_cast<ssize_t>(size),
           "cannot write the file");
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

// Calls a parser, which must succeed or throw an `Error` whose message contains `culprit`. Returns true if it
// succeeds. Any other exception ends the process.
template <typename Error, typename Parse>
bool succeeds(const std::string& culprit, const Parse& parse) {
  try {
    parse();
    return true;
  } catch (const Error& error) {
    expect(std::string(error.what()).find(culprit) != std::string::npos,
           "the error does not name " + culprit + ": " + error.what());
    return false;
  }
}

}  // namespace tensorion::fuzz
