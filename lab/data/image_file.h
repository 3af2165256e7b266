// Image files in JPEG or PNG format. The format is detected from the first bytes, not from the name.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "lab/data/image.h"

namespace tensorion::lab {

// Returns true if the extension is .jpg, .jpeg or .png, in upper or lower case.
bool is_image_name(const std::string& name);

// Returns the size according to the header. Throws a FileError with `path` if the header is corrupt.
ImageSize image_size(std::string_view bytes, const std::filesystem::path& path);

// Decodes an image to RGB. `target` receives the size and returns a pointer to memory for 3 x height x width
// bytes. Throws a FileError with `path` if the bytes are corrupt or truncated.
void decode_image(std::string_view bytes, const std::filesystem::path& path,
                  const std::function<uint8_t*(ImageSize)>& target);

}  // namespace tensorion::lab
