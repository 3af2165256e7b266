// CIFAR-10 and CIFAR-100, the official binary files: records of one label byte
// (CIFAR-100: coarse, then fine label) and 3 x 32 x 32 pixel bytes.
#pragma once

#include <filesystem>

#include "lab/data/image.h"
#include "lab/data/raw_split.h"

namespace tensorion::lab {

inline constexpr ImageSize kCifarSize{32, 32};

// Whether the folder has the first of the files.
bool has_cifar10(const std::filesystem::path& folder);
bool has_cifar100(const std::filesystem::path& folder);

// data_batch_1.bin ... data_batch_5.bin, test_batch.bin.
RawSplits read_cifar10(const std::filesystem::path& folder);
// train.bin, test.bin, fine_label_names.txt; the labels are the 100 fine ones.
RawSplits read_cifar100(const std::filesystem::path& folder);

}  // namespace tensorion::lab
