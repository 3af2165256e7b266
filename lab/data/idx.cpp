#include "lab/data/idx.h"

#include <ATen/ATen.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "lab/io/file.h"

namespace tensorion::lab {
namespace {

// Reads a file through zlib. If the file is not compressed, zlib returns its bytes unchanged.
class GzipReader {
 public:
  explicit GzipReader(const std::filesystem::path& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (!file_) throw FileError(path_, "cannot open the file: " + std::string(std::strerror(errno)));
    gzbuffer(file_.get(), 1 << 17);
  }

  // Reads up to `count` bytes and returns their number, which is smaller only at the end of the file.
  size_t read(void* bytes, size_t count) {
    const int got = gzread(file_.get(), bytes, static_cast<unsigned>(count));
    int code = Z_OK;
    const char* message = gzerror(file_.get(), &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
      throw FileError(
          path_, "cannot read the file: " + std::string(code == Z_ERRNO ? std::strerror(errno) : message));
    }
    return static_cast<size_t>(got);
  }

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };

  std::filesystem::path path_;
  std::unique_ptr<std::remove_pointer_t<gzFile>, Close> file_;
};

}  // namespace

at::Tensor read_idx(const std::filesystem::path& path, int64_t order) {
  GzipReader file(path);
  std::vector<uint8_t> header(4 + 4 * order);
  const size_t got = file.read(header.data(), header.size());
  const std::array<uint8_t, 4> magic{0, 0, 8, static_cast<uint8_t>(order)};
  if (got < 4 || !std::equal(magic.begin(), magic.end(), header.begin())) {
    throw FileError(path, "expected an IDX file of bytes with " + std::to_string(order) +
                              " dimensions, which starts with 0 0 8 " + std::to_string(order));
  }
  if (got < header.size()) throw FileError(path, "the file ends within its header");

  std::vector<int64_t> sizes(order);
  size_t total = 1;
  bool empty = false;
  for (int64_t mode = 0; mode < order; ++mode) {
    for (int byte = 0; byte < 4; ++byte) sizes[mode] = sizes[mode] << 8 | header[4 + 4 * mode + byte];
    empty = empty || sizes[mode] == 0;
    // The limit also applies if another size is zero, because torch multiplies the sizes for the strides.
    if (__builtin_mul_overflow(total, std::max<int64_t>(1, sizes[mode]), &total) || total > INT64_MAX) {
      throw FileError(path, "the sizes in the header are too large");
    }
  }
  if (empty) total = 0;
  // Reads in chunks, so that a corrupt header cannot cause a large allocation.
  constexpr size_t kChunk = 1 << 20;
  std::vector<uint8_t> bytes;
  while (bytes.size() < total) {
    const size_t before = bytes.size();
    const size_t wanted = std::min(kChunk, total - before);
    bytes.resize(before + wanted);
    const size_t count = file.read(bytes.data() + before, wanted);
    if (count < wanted) {
      throw FileError(path, "the file is truncated: expected " + std::to_string(total) +
                                " bytes after the header, got " + std::to_string(before + count));
    }
  }
  uint8_t extra = 0;
  if (file.read(&extra, 1) != 0) {
    throw FileError(path, "expected " + std::to_string(bytes.size()) + " bytes after the header, got more");
  }
  auto out = at::empty(sizes, at::kByte);
  std::copy(bytes.begin(), bytes.end(), out.mutable_data_ptr<uint8_t>());
  return out;
}

}  // namespace tensorion::lab
