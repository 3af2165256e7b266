// An image in memory, as it is passed between the parts of lab/data.
#pragma once

#include <cstdint>

namespace tensorion::lab {

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;

  bool operator==(const ImageSize&) const = default;
};

// Files whose headers claim more pixels are rejected as corrupt.
inline constexpr int64_t kMaxImagePixels = int64_t{1} << 27;

// A non-owning view of an image: bytes in the order channel, row, column.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int64_t channels = 0;
  ImageSize size;
};

}  // namespace tensorion::lab
