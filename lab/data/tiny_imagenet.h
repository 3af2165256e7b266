// Tiny ImageNet in its original layout: wnids.txt (the classes), the pictures
// train/<wnid>/images/*.JPEG and val/images/*.JPEG, and the labels of the
// latter in val/val_annotations.txt, whose lines begin <file> tab <wnid> tab.
#pragma once

#include <filesystem>

#include "lab/data/image.h"
#include "lab/data/raw_split.h"

namespace tensorion::lab {

inline constexpr ImageSize kTinyImagenetSize{64, 64};

// Whether the folder has wnids.txt.
bool has_tiny_imagenet(const std::filesystem::path& folder);

// Any number of classes, in sorted order; the test samples are those of val,
// sorted by file name.
RawSplits read_tiny_imagenet(const std::filesystem::path& folder);

}  // namespace tensorion::lab
