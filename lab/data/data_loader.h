// Yields batches of a Dataset, which background threads prepare in advance.
//
// Batch b of epoch e is a pure function of the data set, the transform and (seed, e, b). It does not depend
// on the number of threads, on the batches before it or on torch's generators, so a run can resume at any
// batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "lab/data/dataset.h"
#include "lab/data/transform.h"

namespace tensorion::lab {

struct Batch {
  at::Tensor images;  // float32, N x C x H x W
  at::Tensor labels;  // int64, N
};

struct DataLoaderOptions {
  int64_t batch_size = 128;
  bool shuffle = false;        // a different order in every epoch
  bool drop_last = false;      // skip the last batch if it is not full
  bool channels_last = false;  // memory format of the images
  bool pin_memory = false;  // allocate batches in page-locked memory, from which CUDA copies asynchronously
  uint64_t seed = 0;        // for shuffling and augmentation
  int64_t workers = 1;      // number of threads
  int64_t prefetch = 4;     // maximum number of batches prepared in advance
};

class DataLoader {
 public:
  DataLoader(Dataset dataset, Transform transform, DataLoaderOptions options);

  // The number of batches and samples in one epoch.
  int64_t batches() const;
  int64_t samples() const;
  // The number of samples in the batches first, first + 1, ..., first + count - 1 of an epoch.
  int64_t samples(int64_t first, int64_t count) const;

  class Epoch;
  // Returns the batches of an epoch, starting at batch `first`. The loader must outlive the result.
  Epoch epoch(int64_t epoch, int64_t first = 0) const;

 private:
  Dataset dataset_;
  Transform transform_;
  DataLoaderOptions options_;
};

// Iterates over an epoch: while (auto batch = epoch.next()) { ... }
// It may be destroyed at any time. The destructor waits for the threads, which stop after their current
// sample.
class DataLoader::Epoch {
 public:
  ~Epoch();
  Epoch(Epoch&&) noexcept;

  // Returns the next batch, or nullopt after the last one. If preparing a batch failed, rethrows the error
  // when that batch is requested.
  std::optional<Batch> next();

 private:
  friend class DataLoader;
  struct State;
  explicit Epoch(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace tensorion::lab
