// Files with one picture. The format is told by the first bytes, not by the name.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "lab/data/image.h"

namespace tensorion::lab {

// Whether the name ends as that of a picture does: .jpg, .jpeg or .png, in any case.
bool is_image_name(const std::string& name);

// The size that the header says. Throws a FileError that names `path` if it is corrupt.
ImageSize image_size(std::string_view bytes, const std::filesystem::path& path);

// Calls `target` with the size of the picture; it returns the place for 3 x height x width bytes, red, green
// and blue. Throws a FileError that names `path` if the bytes are corrupt or truncated.
void decode_image(std::string_view bytes, const std::filesystem::path& path,
                  const std::function<uint8_t*(ImageSize)>& target);

}  // namespace tensorion::lab
