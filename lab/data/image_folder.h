// Image folders: train/<class>/*.jpg and val/<class>/*.jpg (or test/<class>/*.jpg). The extensions may be
// .jpg, .jpeg or .png, in upper or lower case.
#pragma once

#include <filesystem>
#include <vector>

#include "lab/data/raw_split.h"

namespace tensorion::lab {

// Returns true if the folder has a subfolder named train.
bool has_image_folder(const std::filesystem::path& folder);

// Lists the images. The classes are the subfolders of train in sorted order. The folder val, or test if there
// is no val, must have the same subfolders.
RawSplits read_image_folder(const std::filesystem::path& folder);

// Lists the images in a folder, sorted by name. Throws if there are none, or if there are other files.
std::vector<std::filesystem::path> list_images(const std::filesystem::path& folder);

}  // namespace tensorion::lab
