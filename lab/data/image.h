// A picture in memory, as every part of lab/data passes it on.
#pragma once

#include <cstdint>

namespace tensorion::lab {

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;

  bool operator==(const ImageSize&) const = default;
};

// Beyond this many pixels the header of a file is taken to be corrupt, not obeyed.
inline constexpr int64_t kMaxImagePixels = int64_t{1} << 27;

// Bytes of someone else's memory, planar: channel, then row, then column.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int64_t channels = 0;
  ImageSize size;
};

}  // namespace tensorion::lab
