// Resizes images with a triangle filter that is widened for downsampling, like bilinear interpolation with
// antialiasing in torch and Pillow.
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

// Resizes the part `crop` of the image to the size `resized` and computes the part `window` of the result.
// Calls emit(channel, y, row) for each row of the window; a row has window.size.width values in [0, 255].
void resample(const ImageView& image, const Box& crop, ImageSize resized, const Box& window,
              const std::function<void(int64_t, int64_t, const float*)>& emit);

}  // namespace tensorion::lab
