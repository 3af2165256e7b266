// A short text by which a data set is recognized wherever it lies.
#pragma once

#include <filesystem>
#include <string>

#include "lab/data/raw_split.h"

namespace tensorion::lab {

// The CRC-32 of the training samples and that of the test samples, with the names of the classes:
// "0f1e2d3c-89abcdef". Of files: their names below `folder`, their sizes, labels and contents. If they have
// more than 1 GiB together, the contents are those of 1000 files at equal distances.
std::string fingerprint(const RawSplits& data, const std::filesystem::path& folder);

}  // namespace tensorion::lab
