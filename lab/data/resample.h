// Resizes images with antialiasing, like torch and Pillow. For downsampling, the filter is widened.
//
//   bilinear  max(0, 1 - |x|)
//   bicubic   the cubic convolution filter with a = -1/2, for |x| < 2; results are clamped to [0, 255]
#pragma once

#include <functional>
#include <vector>

#include "lab/data/image.h"

namespace tensorion::lab {

enum class Interpolation { kBilinear, kBicubic };

// A rectangle of pixels.
struct Box {
  int64_t top = 0;
  int64_t left = 0;
  ImageSize size;
};

// Resizes the part `crop` of the image to the size `resized` and computes the part `window` of the result.
// Calls emit(channel, y, row) for each row of the window; a row has window.size.width values in [0, 255].
void resample(const ImageView& image, const Box& crop, ImageSize resized, const Box& window,
              const std::function<void(int64_t, int64_t, const float*)>& emit,
              Interpolation interpolation = Interpolation::kBilinear);

}  // namespace tensorion::lab
