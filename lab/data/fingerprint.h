// A short identifier of the contents of a data set, independent of where it is stored.
#pragma once

#include <filesystem>
#include <string>

#include "lab/data/raw_split.h"

namespace tensorion::lab {

// Returns two CRC-32 checksums, of the training split and of the test split, for example "0f1e2d3c-89abcdef".
// Each covers the class names, the labels and the pixels. If the split consists of image files, it covers
// their names relative to `folder`, their sizes and their contents; if the files are larger than 1 GiB in
// total, it covers the contents of about 1000 evenly spaced files only.
std::string fingerprint(const RawSplits& data, const std::filesystem::path& folder);

}  // namespace tensorion::lab
