// Tiny ImageNet in its original layout:
//
//   wnids.txt                   the classes
//   train/<wnid>/images/*.JPEG  the training images
//   val/images/*.JPEG           the test images
//   val/val_annotations.txt     their labels: each line starts with the file name, a tab, the class and a tab
#pragma once

#include <filesystem>

#include "lab/data/image.h"
#include "lab/data/raw_split.h"

namespace tensorion::lab {

inline constexpr ImageSize kTinyImagenetSize{64, 64};

// Returns true if the folder contains wnids.txt.
bool has_tiny_imagenet(const std::filesystem::path& folder);

// Lists the images. Any number of classes is allowed. The classes are sorted by name, and the test samples by
// file name.
RawSplits read_tiny_imagenet(const std::filesystem::path& folder);

}  // namespace tensorion::lab
