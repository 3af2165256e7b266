// Decodes JPEG images with libjpeg-turbo.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "lab/data/image.h"

namespace tensorion::lab {

// Decodes one image to RGB; grayscale and CMYK images are converted. Throws a FileError with `path` if the
// bytes are corrupt or truncated, even if libjpeg would only warn and fill in the missing pixels.
class JpegDecoder {
 public:
  // Reads the header. The bytes must outlive the decoder.
  JpegDecoder(std::string_view bytes, std::filesystem::path path);
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  ImageSize size() const;

  // Writes 3 x height x width bytes. This uses up the decoder.
  void decode(uint8_t* pixels) &&;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tensorion::lab
