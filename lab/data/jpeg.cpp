#include "lab/data/jpeg.h"

#include <csetjmp>
#include <cstdio>
#include <vector>
// The headers of libjpeg require that size_t and FILE are already declared.
#include <jerror.h>
#include <jpeglib.h>

#include "lab/io/file.h"

namespace tensorion::lab {
namespace {

// Huffman coding needs at least one bit per block of 8 x 8 pixels; arithmetic coding needs less only for
// images without content. The limit keeps a small file with a corrupt header from causing a large allocation.
constexpr int64_t kMaxPixelsPerByte = int64_t{8} * 64;

// Progressive images have about ten scans. The limit is needed because a scan of a few bytes can take as long
// as decoding the whole image.
constexpr int kMaxScans = 100;

// libjpeg reports errors through callbacks, and exceptions must not pass through C code. The callbacks
// therefore longjmp out of libjpeg, and the exception is thrown afterwards.
struct ErrorManager {
  jpeg_error_mgr base;  // the first member, so that libjpeg's pointer to it can be cast to ErrorManager
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void on_error(j_common_ptr info) {
  auto* errors = reinterpret_cast<ErrorManager*>(info->err);
  errors->base.format_message(info, errors->message);
  std::longjmp(errors->escape, 1);
}

// Treats warnings (level -1) as errors, because they mean missing or corrupt pixels. Three warnings are
// harmless.
void on_message(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  if (level >= 0 || code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR)
    return;
  on_error(info);
}

void on_progress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
  auto* errors = reinterpret_cast<ErrorManager*>(info->err);
  std::snprintf(errors->message, sizeof errors->message, "more than %d scans", kMaxScans);
  std::longjmp(errors->escape, 1);
}

// Splits one row of pixels into three planes.
void split_rgb(const uint8_t* row, int64_t width, uint8_t* red, uint8_t* green, uint8_t* blue) {
  for (int64_t x = 0; x < width; ++x) {
    red[x] = row[3 * x];
    green[x] = row[3 * x + 1];
    blue[x] = row[3 * x + 2];
  }
}

// Converts one row: R = (1 - C)(1 - K), and so on. Adobe's files store inverted values.
void split_cmyk(const uint8_t* row, int64_t width, bool inverted, uint8_t* planes[3]) {
  for (int64_t x = 0; x < width; ++x) {
    const uint8_t* ink = row + 4 * x;
    const auto light = [&](int c) { return inverted ? ink[c] : 255 - ink[c]; };
    for (int c = 0; c < 3; ++c) planes[c][x] = static_cast<uint8_t>((light(c) * light(3) + 127) / 255);
  }
}

}  // namespace

struct JpegDecoder::State {
  jpeg_decompress_struct info{};
  ErrorManager errors{};
  jpeg_progress_mgr progress{};
  std::filesystem::path path;

  ~State() { jpeg_destroy_decompress(&info); }
  [[noreturn]] void fail() const {
    throw FileError(path, "not a valid JPEG image: " + std::string(errors.message));
  }
};

JpegDecoder::JpegDecoder(std::string_view bytes, std::filesystem::path path)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.path = std::move(path);
  state.info.err = jpeg_std_error(&state.errors.base);
  state.errors.base.error_exit = on_error;
  state.errors.base.emit_message = on_message;
  if (setjmp(state.errors.escape) != 0) state.fail();
  jpeg_create_decompress(&state.info);
  state.progress.progress_monitor = on_progress;
  state.info.progress = &state.progress;
  jpeg_mem_src(&state.info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&state.info, TRUE);
  const bool is_cmyk = state.info.jpeg_color_space == JCS_CMYK || state.info.jpeg_color_space == JCS_YCCK;
  state.info.out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
  const int64_t pixels = size().height * size().width;
  const auto text = [&] {
    return std::to_string(size().height) + " x " + std::to_string(size().width) + " pixels";
  };
  if (pixels > kMaxImagePixels)
    throw FileError(state.path, "expected an image of at most " + std::to_string(kMaxImagePixels) +
                                    " pixels, got " + text());
  if (pixels / kMaxPixelsPerByte > static_cast<int64_t>(bytes.size())) {
    throw FileError(state.path, "an image of " + text() + " does not fit into a file of " +
                                    std::to_string(bytes.size()) + " bytes");
  }
}

JpegDecoder::~JpegDecoder() = default;

ImageSize JpegDecoder::size() const {
  return {static_cast<int64_t>(state_->info.image_height), static_cast<int64_t>(state_->info.image_width)};
}

void JpegDecoder::decode(uint8_t* pixels) && {
  State& state = *state_;
  const auto [height, width] = size();
  const bool is_cmyk = state.info.out_color_space == JCS_CMYK;
  std::vector<uint8_t> row(static_cast<size_t>(width) * (is_cmyk ? 4 : 3));
  uint8_t* row_pointer = row.data();
  // Do not create objects with destructors below: longjmp would skip the destructors.
  if (setjmp(state.errors.escape) != 0) state.fail();
  jpeg_start_decompress(&state.info);
  for (int64_t y = 0; y < height; ++y) {
    jpeg_read_scanlines(&state.info, &row_pointer, 1);
    uint8_t* planes[3];
    for (int c = 0; c < 3; ++c) planes[c] = pixels + (c * height + y) * width;
    if (is_cmyk) {
      split_cmyk(row.data(), width, state.info.saw_Adobe_marker, planes);
    } else {
      split_rgb(row.data(), width, planes[0], planes[1], planes[2]);
    }
  }
  jpeg_finish_decompress(&state.info);
}

}  // namespace tensorion::lab
