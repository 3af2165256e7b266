// Fashion-MNIST: the IDX files (train|t10k)-images-idx3-ubyte and (train|t10k)-labels-idx1-ubyte, either
// plain or compressed with gzip (extension .gz).
#pragma once

#include <filesystem>

#include "lab/data/image.h"
#include "lab/data/raw_split.h"

namespace tensorion::lab {

inline constexpr ImageSize kFashionMnistSize{28, 28};

// Returns true if the folder contains the images of the training split.
bool has_fashion_mnist(const std::filesystem::path& folder);

RawSplits read_fashion_mnist(const std::filesystem::path& folder);

}  // namespace tensorion::lab
