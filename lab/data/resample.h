// Resizing by the triangle filter, widened if images shrink ("bilinear with antialias" in torch and Pillow).
#pragma once

#include <functional>
#include <vector>

#include "lab/data/image.h"

namespace tensorion::lab {

// A rectangle of pixels.
struct Box {
  int64_t top = 0;
  int64_t left = 0;
  ImageSize size;
};

// The `crop` of the picture is resized to `resized`; of that the `window` is
// computed, and handed out row by row: emit(channel, y, row) with
// window.size.width values in [0, 255], y counted within the window.
void resample(const ImageView& image, const Box& crop, ImageSize resized, const Box& window,
              const std::function<void(int64_t, int64_t, const float*)>& emit);

}  // namespace tensorion::lab
