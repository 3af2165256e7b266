#include "lab/data/data_loader.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

namespace tensorion::lab {

// Workers claim batches in order and put them into a ring buffer of `prefetch` slots.
struct DataLoader::Epoch::State {
  struct Slot {
    std::optional<Batch> batch;
    std::exception_ptr error;
  };

  const Dataset& dataset;
  const Transform& transform;
  const DataLoaderOptions& options;
  const int64_t epoch;
  const int64_t end;           // one past the last batch
  std::vector<int64_t> order;  // sample indices in the order of this epoch

  std::atomic<bool> stop{false};
  std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  int64_t next_to_make;
  int64_t next_to_take;
  std::vector<Slot> ring;
  std::vector<std::thread> workers;  // the last member, because the threads use all others

  State(const DataLoader& loader, int64_t epoch, int64_t first);
  ~State();

  void work();
  std::optional<Batch> make_batch(int64_t index, std::vector<uint8_t>& buffer) const;
};

DataLoader::Epoch::State::State(const DataLoader& loader, int64_t epoch, int64_t first)
    : dataset(loader.dataset_),
      transform(loader.transform_),
      options(loader.options_),
      epoch(epoch),
      end(loader.batches()),
      next_to_make(first),
      next_to_take(first),
      ring(options.prefetch) {
  if (options.shuffle) {
    order = random_permutation(dataset.count(), Random(options.seed, Random::Purpose::kShuffle, epoch));
  } else {
    order.resize(dataset.count());
    std::iota(order.begin(), order.end(), 0);
  }
}

DataLoader::Epoch::State::~State() {
  {
    const std::lock_guard lock(mutex);
    stop = true;
  }
  changed.notify_all();
  for (auto& worker : workers) worker.join();
}

// Returns nullopt if `stop` was set in the meantime.
std::optional<Batch> DataLoader::Epoch::State::make_batch(int64_t index, std::vector<uint8_t>& buffer) const {
  const int64_t begin = index * options.batch_size;
  const int64_t count = std::min(options.batch_size, dataset.count() - begin);
  const auto [height, width] = transform.size;
  Batch batch;
  batch.images =
      at::empty({count, dataset.channels, height, width},
                at::TensorOptions().dtype(at::kFloat).pinned_memory(options.pin_memory),
                options.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  batch.labels = at::empty({count}, at::TensorOptions().dtype(at::kLong).pinned_memory(options.pin_memory));
  auto* images = batch.images.mutable_data_ptr<float>();
  auto* labels = batch.labels.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    if (stop) return std::nullopt;
    const int64_t sample = order[begin + i];
    labels[i] = dataset.labels.const_data_ptr<int64_t>()[sample];
    apply(transform, dataset.image(sample, buffer),
          Random(options.seed, Random::Purpose::kAugment, epoch, sample), options.channels_last,
          images + i * dataset.channels * height * width);
  }
  return batch;
}

void DataLoader::Epoch::State::work() {
  std::vector<uint8_t> buffer;
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(
        lock, [&] { return stop || next_to_make == end || next_to_make < next_to_take + options.prefetch; });
    if (stop || next_to_make == end) return;
    const int64_t index = next_to_make++;
    lock.unlock();
    Slot slot;
    try {
      slot.batch = make_batch(index, buffer);
    } catch (...) {
      slot.error = std::current_exception();
    }
    lock.lock();
    ring[index % options.prefetch] = std::move(slot);
    changed.notify_all();
  }
}

DataLoader::Epoch::Epoch(std::unique_ptr<State> state) : state_(std::move(state)) {}
DataLoader::Epoch::Epoch(Epoch&&) noexcept = default;
DataLoader::Epoch::~Epoch() = default;

std::optional<Batch> DataLoader::Epoch::next() {
  State& state = *state_;
  State::Slot slot;
  {
    std::unique_lock lock(state.mutex);
    if (state.next_to_take == state.end) return std::nullopt;
    State::Slot& ready = state.ring[state.next_to_take % state.options.prefetch];
    state.changed.wait(lock, [&] { return ready.batch || ready.error; });
    slot = std::exchange(ready, {});
    ++state.next_to_take;
  }
  state.changed.notify_all();
  if (slot.error) std::rethrow_exception(slot.error);
  return std::move(slot.batch);
}

DataLoader::DataLoader(Dataset dataset, Transform transform, DataLoaderOptions options)
    : dataset_(std::move(dataset)), transform_(std::move(transform)), options_(options) {
  const auto at_least_one = [](const char* name, int64_t value) {
    TORCH_CHECK_VALUE(value >= 1, "[tensorion.data] ", name, " must be at least 1, got ", value);
  };
  at_least_one("batch_size", options_.batch_size);
  at_least_one("workers", options_.workers);
  at_least_one("prefetch", options_.prefetch);
  at_least_one("the number of batches", batches());
}

int64_t DataLoader::batches() const {
  const int64_t full = dataset_.count() / options_.batch_size;
  return options_.drop_last || dataset_.count() % options_.batch_size == 0 ? full : full + 1;
}

int64_t DataLoader::samples() const { return std::min(dataset_.count(), batches() * options_.batch_size); }

int64_t DataLoader::samples(int64_t first, int64_t count) const {
  const auto until = [&](int64_t batch) { return std::min(samples(), batch * options_.batch_size); };
  return until(first + count) - until(first);
}

DataLoader::Epoch DataLoader::epoch(int64_t epoch, int64_t first) const {
  TORCH_CHECK_VALUE(first >= 0 && first <= batches(), "[tensorion.data] the first batch must be in [0, ",
                    batches(), "], got ", first);
  auto state = std::make_unique<Epoch::State>(*this, epoch, first);
  for (int64_t i = 0; i < options_.workers; ++i) {
    state->workers.emplace_back([s = state.get()] { s->work(); });
  }
  return Epoch(std::move(state));
}

}  // namespace tensorion::lab
