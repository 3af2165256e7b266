// Data sets. All files in lab/data use the following terms, which follow PyTorch:
//
//   sample         one image with its label
//   split          the samples for training, or those for testing
//   RawSplit       a split as it is stored on disk: its pixels, or the names of its files (raw_split.h)
//   RawSplits      both splits, with the names of the classes
//   Dataset        a loaded split, from which any thread can read samples (this file)
//   DatasetSplits  both loaded splits, with the names of the classes and their transforms (catalog.h)
//   transform      crops, flips and normalizes an image (transform.h)
//   DataLoader     prepares batches of transformed samples in the background (data_loader.h)
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/data/image.h"
#include "lab/data/raw_split.h"

namespace tensorion::lab {

struct ImageFile {
  std::filesystem::path path;
  std::string bytes;  // empty if the files exceed the memory limit; the file is then read at each access
};

// Either `pixels` or `files` is set. Copies are cheap, because they share the images.
struct Dataset {
  int64_t channels = 0;
  std::optional<ImageSize> size;                        // of every image; nullopt if sizes may differ
  at::Tensor pixels;                                    // uint8, N x channels x height x width
  std::shared_ptr<const std::vector<ImageFile>> files;  // decoded at each access
  at::Tensor labels;                                    // int64, N

  int64_t count() const { return labels.size(0); }

  // Returns the image of sample `index`. If the image must be decoded, its pixels are written to `buffer`.
  // The function is thread-safe if each thread has its own buffer.
  ImageView image(int64_t index, std::vector<uint8_t>& buffer) const;
};

// Returns a quarter of the machine's memory, in bytes.
int64_t default_memory_limit();

// Loads a split with all threads of torch. If `size` is given, every image must have this size, and the
// images are kept in memory decoded if they take at most `memory_limit` bytes. Otherwise the encoded files
// are kept in memory if they fit into the limit. If not, the files are read at each access.
Dataset make_dataset(const RawSplit& split, std::optional<ImageSize> size, int64_t memory_limit);

}  // namespace tensorion::lab
