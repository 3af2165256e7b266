#include "lab/data/image_file.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "lab/data/jpeg.h"
#include "lab/data/png.h"

namespace tensorion::lab {
namespace {

bool is_png(std::string_view bytes) { return bytes.starts_with("\x89PNG\r\n\x1a\n"); }

template <typename Decoder>
void decode_with(std::string_view bytes, const std::filesystem::path& path,
                 const std::function<uint8_t*(ImageSize)>& target) {
  Decoder decoder(bytes, path);
  uint8_t* pixels = target(decoder.size());
  std::move(decoder).decode(pixels);
}

}  // namespace

bool is_image_name(const std::string& name) {
  auto extension = std::filesystem::path(name).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

ImageSize image_size(std::string_view bytes, const std::filesystem::path& path) {
  return is_png(bytes) ? PngDecoder(bytes, path).size() : JpegDecoder(bytes, path).size();
}

void decode_image(std::string_view bytes, const std::filesystem::path& path,
                  const std::function<uint8_t*(ImageSize)>& target) {
  if (is_png(bytes)) {
    decode_with<PngDecoder>(bytes, path, target);
  } else {
    decode_with<JpegDecoder>(bytes, path, target);
  }
}

}  // namespace tensorion::lab
