// Data sets. The terms are PyTorch's, and every file in lab/data uses them in this sense:
//
//   sample         one image with its label
//   split          the samples to train on, or those to test on
//   RawSplit       a split as a reader finds it on disk: its pixels, or the names of its files (raw_split.h)
//   RawSplits      both of them, with the names of the classes
//   Dataset        a split that is loaded, from which any thread can take a sample (this file)
//   DatasetSplits  both of them, with the names of the classes and their transforms (catalog.h)
//   transform      crops, flips and normalizes an image (transform.h)
//   DataLoader     makes batches of a Dataset's samples, transformed, in the background (data_loader.h)
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
  std::string bytes;  // empty if there is no room to keep them: the file is then read at each use
};

// Cheap to copy: copies share the images. Either `pixels` or `files` is set.
struct Dataset {
  int64_t channels = 0;
  std::optional<ImageSize> size;                        // of every image; none if sizes may differ
  at::Tensor pixels;                                    // uint8, N x channels x height x width
  std::shared_ptr<const std::vector<ImageFile>> files;  // decoded at each use
  at::Tensor labels;                                    // int64, N

  int64_t count() const { return labels.size(0); }

  // The image of sample `index`. If it is decoded for this call, its pixels are in `buffer`. Threads may call
  // this at the same time, each with a buffer of its own.
  ImageView image(int64_t index, std::vector<uint8_t>& buffer) const;
};

// A quarter of the machine's memory, in bytes.
int64_t default_memory_limit();

// Loads a split, with all of torch's threads. If `size` is given every image must have it, and the images are
// kept decoded if that takes at most `memory_limit` bytes. Otherwise files are kept encoded if that
// takes at most as much, else read again at each use.
Dataset make_dataset(const RawSplit& split, std::optional<ImageSize> size, int64_t memory_limit);

}  // namespace tensorion::lab
