#include "lab/data/resample.h"

#include <algorithm>
#include <cmath>

namespace tensorion::lab {
namespace {

// The filter weights of each output position, for the input positions begin ... begin + count - 1.
struct Taps {
  struct Span {
    int64_t begin, count;
  };
  std::vector<Span> spans;
  std::vector<float> weights;  // `stride` weights for each output position
  int64_t stride = 0;

  const float* weights_of(int64_t i) const { return weights.data() + i * stride; }
};

double bilinear(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

// The center of output position i is at (i + 0.5) * in / out on the input axis. For downsampling, the filter
// is stretched by the factor by which the image shrinks.
Taps make_taps(int64_t in, int64_t out, int64_t first, int64_t count, Interpolation interpolation) {
  const bool is_bicubic = interpolation == Interpolation::kBicubic;
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double stretch = std::max(scale, 1.0);
  const double support = is_bicubic ? 2 * stretch : stretch;
  Taps taps;
  taps.stride = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  taps.spans.resize(count);
  taps.weights.resize(count * taps.stride);
  for (int64_t i = 0; i < count; ++i) {
    const double center = (static_cast<double>(first + i) + 0.5) * scale;
    const int64_t begin = std::max<int64_t>(std::lround(center - support), 0);
    const int64_t end = std::min<int64_t>(std::lround(center + support), in);
    const auto weight = [&](int64_t j) {
      const double x = (static_cast<double>(j) + 0.5 - center) / stretch;
      return is_bicubic ? bicubic(x) : bilinear(x);
    };
    double sum = 0;
    for (int64_t j = begin; j < end; ++j) sum += weight(j);
    for (int64_t j = begin; j < end; ++j) {
      taps.weights[i * taps.stride + j - begin] = static_cast<float>(weight(j) / sum);
    }
    taps.spans[i] = {begin, end - begin};
  }
  return taps;
}

}  // namespace

void resample(const ImageView& image, const Box& crop, ImageSize resized, const Box& window,
              const std::function<void(int64_t, int64_t, const float*)>& emit, Interpolation interpolation) {
  const Taps vertical =
      make_taps(crop.size.height, resized.height, window.top, window.size.height, interpolation);
  const Taps horizontal =
      make_taps(crop.size.width, resized.width, window.left, window.size.width, interpolation);
  // The columns of the crop that contribute to the window.
  const int64_t left = horizontal.spans.front().begin;
  const int64_t right = horizontal.spans.back().begin + horizontal.spans.back().count;
  std::vector<float> column_sums(right - left);
  std::vector<float> row(window.size.width);
  for (int64_t c = 0; c < image.channels; ++c) {
    const uint8_t* plane = image.pixels + c * image.size.height * image.size.width;
    for (int64_t y = 0; y < window.size.height; ++y) {
      std::fill(column_sums.begin(), column_sums.end(), 0.0F);
      const auto [first_row, rows] = vertical.spans[y];
      for (int64_t j = 0; j < rows; ++j) {
        const uint8_t* source = plane + (crop.top + first_row + j) * image.size.width + crop.left + left;
        const float weight = vertical.weights_of(y)[j];
        for (int64_t x = 0; x < right - left; ++x) column_sums[x] += weight * static_cast<float>(source[x]);
      }
      for (int64_t x = 0; x < window.size.width; ++x) {
        const float* sums = column_sums.data() + horizontal.spans[x].begin - left;
        const float* weights = horizontal.weights_of(x);
        float sum = 0;
        for (int64_t j = 0; j < horizontal.spans[x].count; ++j) sum += weights[j] * sums[j];
        row[x] = interpolation == Interpolation::kBicubic ? std::clamp(sum, 0.0F, 255.0F) : sum;
      }
      emit(c, y, row.data());
    }
  }
}

}  // namespace tensorion::lab
