// From a picture of bytes to what the model sees: crop, flip, normalize, in
// one pass into the batch. A pure function of the picture and the random stream.
#pragma once

#include <variant>
#include <vector>

#include "lab/data/image.h"
#include "lab/data/random.h"
#include "lab/data/resample.h"

namespace tensorion::lab {

// Of pixel values in [0, 1], one for each channel.
struct Normalization {
  std::vector<double> mean;
  std::vector<double> std;
};

// A random rectangle of the picture's own size, out of the picture with
// `padding` black pixels around it.
struct PaddedCrop {
  int64_t padding = 0;
};

// A random rectangle with a share of the picture's area uniform in the given
// range and width / height log-uniform in its range, resized.
struct RandomResizedCrop {
  double min_area = 0.08;
  double max_area = 1;
  double min_ratio = 3.0 / 4;
  double max_ratio = 4.0 / 3;
};

// The picture resized so that its shorter side is this, then the middle of it.
struct CenterCrop {
  int64_t shorter_side = 256;
};

struct Transform {
  ImageSize size;  // of the result
  std::variant<PaddedCrop, RandomResizedCrop, CenterCrop> crop;
  bool flip = false;  // left to right, half of the time
  Normalization normalization;
  bool flip_vertical = false;  // top to bottom, half of the time
  bool transpose = false;      // exchange height and width at the end, which must be equal
  Interpolation interpolation = Interpolation::kBilinear;  // of the crops that resize
};

// The rectangle a RandomResizedCrop takes of a picture of this size.
Box random_resized_box(const RandomResizedCrop& crop, ImageSize size, Random& random);

// Writes (pixel / 255 - mean) / std, channels x height x width floats, or
// height x width x channels if channels_last.
void apply(const Transform& transform, const ImageView& image, Random random, bool channels_last, float* out);

}  // namespace tensorion::lab
