#include "lab/data/png.h"

#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "lab/io/file.h"

namespace tensorion::lab {
namespace {

// Deflate expands a byte to at most 1032 bytes, each of up to 8 pixels. The limit keeps a small file with a
// corrupt header from causing a large allocation.
constexpr int64_t kMaxPixelsPerByte = int64_t{1032} * 8;

// Limits the memory for texts and color profiles, which are not used.
constexpr png_alloc_size_t kMaxChunkBytes = 8'000'000;

}  // namespace

struct PngDecoder::State {
  std::filesystem::path path;
  std::string_view rest;  // the bytes that are not read yet
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::jmp_buf escape;
  char message[200] = {};

  ~State() { png_destroy_read_struct(&png, &info, nullptr); }

  [[noreturn]] void fail() const { throw FileError(path, std::string("not a valid PNG image: ") + message); }

  // libpng reports errors through callbacks, and exceptions must not pass through C code. The callback
  // therefore longjmps out of libpng, and the exception is thrown afterwards.
  [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
    auto& state = *static_cast<State*>(png_get_error_ptr(png));
    std::snprintf(state.message, sizeof state.message, "%s", message);
    std::longjmp(state.escape, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}  // warnings concern chunks that are not used

  static void on_read(png_structp png, png_bytep out, size_t count) {
    auto& state = *static_cast<State*>(png_get_io_ptr(png));
    if (state.rest.size() < count) png_error(png, "the file is truncated");
    std::memcpy(out, state.rest.data(), count);
    state.rest.remove_prefix(count);
  }
};

PngDecoder::PngDecoder(std::string_view bytes, std::filesystem::path path)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.path = std::move(path);
  state.rest = bytes;
  state.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state, State::on_error, State::on_warning);
  if (state.png != nullptr) state.info = png_create_info_struct(state.png);
  if (state.info == nullptr) throw std::bad_alloc();
  // Do not create objects with destructors below: longjmp would skip the destructors.
  if (setjmp(state.escape) != 0) state.fail();
  png_set_chunk_malloc_max(state.png, kMaxChunkBytes);
  png_set_read_fn(state.png, &state, State::on_read);
  png_read_info(state.png, state.info);
  const int64_t pixels = size().height * size().width;
  if (pixels > kMaxImagePixels || pixels / kMaxPixelsPerByte > static_cast<int64_t>(bytes.size())) {
    std::snprintf(state.message, sizeof state.message, "%ld x %ld pixels do not fit into a file of %zu bytes",
                  size().height, size().width, bytes.size());
    state.fail();
  }
}

PngDecoder::~PngDecoder() = default;

ImageSize PngDecoder::size() const {
  return {static_cast<int64_t>(png_get_image_height(state_->png, state_->info)),
          static_cast<int64_t>(png_get_image_width(state_->png, state_->info))};
}

void PngDecoder::decode(uint8_t* pixels) && {
  State& state = *state_;
  const auto [height, width] = size();
  // The whole image is buffered, because interlaced images are decoded in seven passes over all rows.
  std::vector<uint8_t> image(static_cast<size_t>(height) * static_cast<size_t>(width) * 3);
  if (setjmp(state.escape) != 0) state.fail();
  png_set_expand(state.png);
  png_set_strip_16(state.png);  // the high byte, as Pillow does
  png_set_strip_alpha(state.png);
  png_set_gray_to_rgb(state.png);
  const int passes = png_set_interlace_handling(state.png);
  png_read_update_info(state.png, state.info);
  if (png_get_rowbytes(state.png, state.info) != static_cast<size_t>(width) * 3) {
    png_error(state.png, "unexpected pixel format");
  }
  for (int pass = 0; pass < passes; ++pass) {
    for (int64_t y = 0; y < height; ++y) png_read_row(state.png, image.data() + y * width * 3, nullptr);
  }
  png_read_end(state.png, nullptr);
  const int64_t plane = height * width;
  for (int64_t i = 0; i < plane; ++i) {
    for (int64_t c = 0; c < 3; ++c) pixels[c * plane + i] = image[3 * i + c];
  }
}

}  // namespace tensorion::lab
