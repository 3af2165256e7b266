// The bytes are a PNG file in an image folder.
#include <vector>

#include "lab/data/png.h"
#include "lab/io/file.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tensorion;
  const std::string bytes = fuzz::text(data, size);
  fuzz::succeeds<lab::FileError>("some/file.png", [&] {
    lab::PngDecoder decoder(bytes, "some/file.png");
    const auto [height, width] = decoder.size();
    fuzz::expect(height > 0 && width > 0, "an empty image");
    std::vector<uint8_t> pixels(3 * static_cast<size_t>(height) * static_cast<size_t>(width));
    std::move(decoder).decode(pixels.data());
  });
  return 0;
}
