// The bytes are an IDX file, possibly compressed with gzip, that is read as labels and as images.
#include <ATen/ATen.h>

#include "lab/data/idx.h"
#include "lab/io/file.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tensorion;
  static const fuzz::MemoryFile file;
  file.write(data, size);
  for (const int64_t order : {1, 3}) {
    fuzz::succeeds<lab::FileError>(file.path(), [&] {
      const auto x = lab::read_idx(file.path(), order);
      // Deflate expands a byte to at most 1032 bytes.
      fuzz::expect(x.dim() == order && x.numel() <= 1032 * static_cast<int64_t>(size), "more than was read");
    });
  }
  return 0;
}
