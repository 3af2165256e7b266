// Batches of a Dataset, made ahead of time by background threads.
//
// Batch b of epoch e is a pure function of the data set, the transform and (seed, e, b): it does not depend
// on the number of threads, on the batches before it, or on torch's generators, so a run can resume at any
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
  bool shuffle = false;        // a new order in every epoch
  bool drop_last = false;      // leave out a last batch that is not full
  bool channels_last = false;  // the memory format of the images
  bool pin_memory = false;     // batches in page-locked memory, from which CUDA copies without waiting
  uint64_t seed = 0;           // of the order and of the augmentation
  int64_t workers = 1;         // threads
  int64_t prefetch = 4;        // number of batches they may be ahead of the consumer
};

class DataLoader {
 public:
  DataLoader(Dataset dataset, Transform transform, DataLoaderOptions options);

  // Of one epoch.
  int64_t batches() const;
  int64_t samples() const;
  // In the batches first, first + 1, ..., first + count - 1 of an epoch.
  int64_t samples(int64_t first, int64_t count) const;

  class Epoch;
  // The batches of an epoch, from batch `first` on. The loader must outlive it.
  Epoch epoch(int64_t epoch, int64_t first = 0) const;

 private:
  Dataset dataset_;
  Transform transform_;
  DataLoaderOptions options_;
};

// while (auto batch = epoch.next()) { ... }
// May be destroyed at any time: that waits for its threads, which stop at the next sample.
class DataLoader::Epoch {
 public:
  ~Epoch();
  Epoch(Epoch&&) noexcept;

  // The next batch, none after the last. An error in making a batch is thrown when it is that batch's turn.
  std::optional<Batch> next();

 private:
  friend class DataLoader;
  struct State;
  explicit Epoch(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace tensorion::lab
