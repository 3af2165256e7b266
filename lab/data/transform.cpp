#include "lab/data/transform.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace tensorion::lab {
namespace {

// Writes the pixels of one image to the batch. Flips, transposes and normalizes them on the way.
class Output {
 public:
  Output(const Transform& transform, int64_t channels, bool flip, bool flip_vertical, bool channels_last,
         float* out)
      : normalization_(transform.normalization),
        size_(transform.size),
        flip_(flip),
        flip_vertical_(flip_vertical),
        x_stride_(channels_last ? channels : 1),
        y_stride_(size_.width * x_stride_),
        channel_stride_(channels_last ? 1 : size_.height * size_.width),
        out_(out) {
    if (transform.transpose) std::swap(x_stride_, y_stride_);
  }

  // Columns [begin, end) of the row are read from `source`. The other columns are black.
  template <typename Pixel>
  void write_row(int64_t channel, int64_t y, const Pixel* source, int64_t begin, int64_t end) const {
    const auto scale = static_cast<float>(1 / (255 * normalization_.std[channel]));
    const auto black = static_cast<float>(-normalization_.mean[channel] / normalization_.std[channel]);
    const int64_t step = flip_ ? -x_stride_ : x_stride_;
    float* row = out_ + channel * channel_stride_ + (flip_vertical_ ? size_.height - 1 - y : y) * y_stride_ +
                 (flip_ ? (size_.width - 1) * x_stride_ : 0);
    for (int64_t x = 0; x < begin; ++x) row[x * step] = black;
    for (int64_t x = begin; x < end; ++x) {
      row[x * step] = static_cast<float>(source[x - begin]) * scale + black;
    }
    for (int64_t x = end; x < size_.width; ++x) row[x * step] = black;
  }

 private:
  const Normalization& normalization_;
  ImageSize size_;
  bool flip_, flip_vertical_;
  int64_t x_stride_, y_stride_, channel_stride_;
  float* out_;
};

// Pixel (y, x) of the result is pixel (y + top, x + left) of the image.
void padded_crop(const ImageView& image, int64_t top, int64_t left, const Output& output) {
  const ImageSize size = image.size;
  const int64_t begin = std::clamp<int64_t>(-left, 0, size.width);
  const int64_t end = std::clamp<int64_t>(size.width - left, begin, size.width);
  for (int64_t c = 0; c < image.channels; ++c) {
    for (int64_t y = 0; y < size.height; ++y) {
      const int64_t source_y = y + top;
      if (source_y < 0 || source_y >= size.height) {
        output.write_row(c, y, image.pixels, 0, 0);
      } else {
        const uint8_t* row = image.pixels + (c * size.height + source_y) * size.width;
        output.write_row(c, y, row + left + begin, begin, end);
      }
    }
  }
}

}  // namespace

Box random_resized_box(const RandomResizedCrop& crop, ImageSize size, Random& random) {
  const auto whole_height = static_cast<double>(size.height), whole_width = static_cast<double>(size.width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = whole_height * whole_width * random.uniform(crop.min_area, crop.max_area);
    const double ratio = std::exp(random.uniform(std::log(crop.min_ratio), std::log(crop.max_ratio)));
    const auto width = static_cast<int64_t>(std::lround(std::sqrt(area * ratio)));
    const auto height = static_cast<int64_t>(std::lround(std::sqrt(area / ratio)));
    if (width < 1 || height < 1 || width > size.width || height > size.height) continue;
    const int64_t top = random.below(size.height - height + 1);
    return {top, random.below(size.width - width + 1), {height, width}};
  }
  // No attempt succeeded: use the largest centered box whose aspect ratio is within the bounds.
  ImageSize part = size;
  if (whole_width / whole_height < crop.min_ratio) {
    part.height = std::clamp<int64_t>(std::lround(whole_width / crop.min_ratio), 1, size.height);
  } else if (whole_width / whole_height > crop.max_ratio) {
    part.width = std::clamp<int64_t>(std::lround(whole_height * crop.max_ratio), 1, size.width);
  }
  return {(size.height - part.height) / 2, (size.width - part.width) / 2, part};
}

void apply(const Transform& transform, const ImageView& image, Random random, bool channels_last,
           float* out) {
  const auto& [mean, std] = transform.normalization;
  TORCH_CHECK_VALUE(static_cast<int64_t>(mean.size()) == image.channels && std.size() == mean.size(),
                    "[tensorion.data] expected a mean and a standard deviation for each of ", image.channels,
                    " channels, got ", mean.size(), " and ", std.size());
  TORCH_CHECK_VALUE(!transform.transpose || transform.size.height == transform.size.width,
                    "[tensorion.data] only square images can be transposed, got ", transform.size.height,
                    " x ", transform.size.width);
  const bool flip = transform.flip && random.coin();
  const bool flip_vertical = transform.flip_vertical && random.coin();
  const Output output(transform, image.channels, flip, flip_vertical, channels_last, out);
  const auto emit = [&](int64_t channel, int64_t y, const float* row) {
    output.write_row(channel, y, row, 0, transform.size.width);
  };
  if (const auto* padded = std::get_if<PaddedCrop>(&transform.crop)) {
    TORCH_CHECK_VALUE(image.size == transform.size,
                      "[tensorion.data] a padded crop does not resize: expected an image of ",
                      transform.size.height, " x ", transform.size.width, ", got ", image.size.height, " x ",
                      image.size.width);
    const int64_t top = random.below(2 * padded->padding + 1) - padded->padding;
    const int64_t left = random.below(2 * padded->padding + 1) - padded->padding;
    padded_crop(image, top, left, output);
  } else if (const auto* resized = std::get_if<RandomResizedCrop>(&transform.crop)) {
    const Box crop = random_resized_box(*resized, image.size, random);
    resample(image, crop, transform.size, {0, 0, transform.size}, emit, transform.interpolation);
  } else {
    const int64_t side = std::get<CenterCrop>(transform.crop).shorter_side;
    const int64_t crop_side = std::max(transform.size.height, transform.size.width);
    TORCH_CHECK_VALUE(side >= crop_side,
                      "[tensorion.data] the shorter side before the center crop must be at least ", crop_side,
                      ", the longer side of the crop, got ", side);
    const int64_t shorter = std::min(image.size.height, image.size.width);
    const ImageSize whole{side * image.size.height / shorter, side * image.size.width / shorter};
    const Box middle{(whole.height - transform.size.height) / 2, (whole.width - transform.size.width) / 2,
                     transform.size};
    resample(image, {0, 0, image.size}, whole, middle, emit, transform.interpolation);
  }
}

}  // namespace tensorion::lab
