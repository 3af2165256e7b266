// Image folders: train/<class>/*.jpg and val/<class>/*.jpg (or test/...), file
// names ending in .jpg, .jpeg or .png in any case.
#pragma once

#include <filesystem>
#include <vector>

#include "lab/data/raw_split.h"

namespace tensorion::lab {

// True if the folder has a subfolder train.
bool has_image_folder(const std::filesystem::path& folder);

// Classes are the subfolders of train in sorted order. The subfolders of val, or of test if there is no val,
// must be the same.
RawSplits read_image_folder(const std::filesystem::path& folder);

// The pictures in a folder, sorted by name: at least one, and nothing else.
std::vector<std::filesystem::path> list_images(const std::filesystem::path& folder);

}  // namespace tensorion::lab
