// CIFAR-10 and CIFAR-100 in their official binary format. Each record is a label byte (CIFAR-100: the coarse
// label, then the fine one) followed by 3 x 32 x 32 pixel bytes.
#pragma once

#include <filesystem>

#include "lab/data/image.h"
#include "lab/data/raw_split.h"

namespace tensorion::lab {

inline constexpr ImageSize kCifarSize{32, 32};

// Return true if the folder contains the first training file.
bool has_cifar10(const std::filesystem::path& folder);
bool has_cifar100(const std::filesystem::path& folder);

// Reads data_batch_1.bin to data_batch_5.bin and test_batch.bin.
RawSplits read_cifar10(const std::filesystem::path& folder);
// Reads train.bin, test.bin and fine_label_names.txt. The labels are the 100 fine labels.
RawSplits read_cifar100(const std::filesystem::path& folder);

}  // namespace tensorion::lab
