// Decodes PNG images with libpng.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "lab/data/image.h"

namespace tensorion::lab {

// Decodes one image to RGB in the same way as Pillow's convert("RGB"): palettes and grayscale are expanded,
// 16-bit values are reduced to their high byte, the alpha channel is dropped, and gamma is not applied.
// Throws a FileError with `path` if the bytes are corrupt or truncated.
class PngDecoder {
 public:
  // Reads the header. The bytes must outlive the decoder.
  PngDecoder(std::string_view bytes, std::filesystem::path path);
  ~PngDecoder();
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  ImageSize size() const;

  // Writes 3 x height x width bytes. This uses up the decoder.
  void decode(uint8_t* pixels) &&;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tensorion::lab
