// Labelled pictures, ready for any thread to take one.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/data/image.h"
#include "lab/data/samples.h"

namespace tensorion::lab {

struct JpegFile {
  std::filesystem::path path;
  std::string bytes;  // empty where there is no room to keep them: read at each use
};

// One split (train or test). Cheap to copy: copies share the pictures.
struct Dataset {
  int64_t channels = 0;
  std::optional<ImageSize> size;  // of every picture; none where sizes may differ
  at::Tensor pixels;              // uint8, N x channels x height x width; undefined where decoded at use:
  std::shared_ptr<const std::vector<JpegFile>> files;
  at::Tensor labels;  // int64, N

  int64_t count() const { return labels.size(0); }

  // Picture `index`. `buffer` holds its pixels where they are decoded for this
  // call. Threads may call this together, each with its own buffer.
  ImageView image(int64_t index, std::vector<uint8_t>& buffer) const;
};

// A quarter of the machine's memory, in bytes.
int64_t default_memory_limit();

// Loads the samples, with all of torch's threads. Where `size` is given every
// picture must have it, and the pictures are kept decoded if that takes at most
// `memory_limit` bytes. JPEG pictures of any size are kept as they are in their
// files if that takes at most as much, else read again at each use.
Dataset load_samples(const Samples& samples, std::optional<ImageSize> size, int64_t memory_limit);

}  // namespace tensorion::lab
