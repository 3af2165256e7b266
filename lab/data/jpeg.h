// JPEG pictures, by libjpeg-turbo.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "lab/data/image.h"

namespace tensorion::lab {

// Decodes one image to RGB; grayscale and CMYK images are converted. Throws a FileError that names `path` if
// the bytes are corrupt or truncated, also if libjpeg would only warn and invent the missing pixels.
class JpegDecoder {
 public:
  // Reads the header. The bytes must outlive the decoder.
  JpegDecoder(std::string_view bytes, std::filesystem::path path);
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  ImageSize size() const;

  // Writes 3 x height x width bytes. To be called once.
  void decode(uint8_t* pixels);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tensorion::lab
