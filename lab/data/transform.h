// Transforms an image of bytes into the input of the model: crops, flips and normalizes it in one pass and
// writes it into the batch. The result depends only on the image and the random stream.
#pragma once

#include <variant>
#include <vector>

#include "lab/data/image.h"
#include "lab/data/random.h"
#include "lab/data/resample.h"

namespace tensorion::lab {

// Mean and standard deviation of each channel, for pixel values in [0, 1].
struct Normalization {
  std::vector<double> mean;
  std::vector<double> std;
};

// Pads the image with `padding` black pixels on each side and takes a random crop of the original size.
struct PaddedCrop {
  int64_t padding = 0;
};

// Takes a random crop and resizes it. The crop's fraction of the image area is uniform, and its width /
// height is log-uniform, each in the given range.
struct RandomResizedCrop {
  double min_area = 0.08;
  double max_area = 1;
  double min_ratio = 3.0 / 4;
  double max_ratio = 4.0 / 3;
};

// Resizes the image so that its shorter side has this length, then takes the center crop.
struct CenterCrop {
  int64_t shorter_side = 256;
};

struct Transform {
  ImageSize size;  // size of the result
  std::variant<PaddedCrop, RandomResizedCrop, CenterCrop> crop;
  bool flip = false;  // horizontal flip with probability 1/2
  Normalization normalization;
  bool flip_vertical = false;  // vertical flip with probability 1/2
  bool transpose = false;      // exchange height and width, which must be equal, at the end
  Interpolation interpolation = Interpolation::kBilinear;  // used by the crops that resize
};

// Draws the box that RandomResizedCrop takes from an image of this size.
Box random_resized_box(const RandomResizedCrop& crop, ImageSize size, Random& random);

// Writes (pixel / 255 - mean) / std as channels x height x width floats, or as height x width x channels if
// channels_last is true.
void apply(const Transform& transform, const ImageView& image, Random random, bool channels_last, float* out);

}  // namespace tensorion::lab
