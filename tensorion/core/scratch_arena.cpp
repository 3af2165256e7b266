#include "tensorion/core/scratch_arena.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace tensorion {
namespace {

// A single buffer that is divided into blocks by best fit. A request that does not fit is allocated
// separately. When no memory is in use, the next request enlarges the buffer to the high-water mark.
class Arena {
 public:
  static Arena& instance() {
    // The arena is never destroyed, because a tensor may outlive static objects.
    static auto* const arena = new Arena;
    return *arena;
  }

  at::Tensor allocate(at::IntArrayRef sizes, const at::TensorOptions& options) {
    constexpr size_t kAlignment = 64;
    const size_t elements = c10::multiply_integers(sizes);
    const size_t bytes = (elements * options.dtype().itemsize() + kAlignment - 1) / kAlignment * kAlignment;
    const std::lock_guard lock(mutex_);
    if (in_use_ == 0 && high_water_mark_ > capacity_) grow();
    const auto block = std::min_element(
        free_blocks_.begin(), free_blocks_.end(),
        [bytes](const auto& a, const auto& b) { return fit(a.second, bytes) < fit(b.second, bytes); });
    if (block == free_blocks_.end() || block->second < bytes) {
      // Allocate before recording the use, because at::empty may throw.
      const auto separate = at::empty(sizes, options);
      record_use(bytes);
      return at::from_blob(
          separate.data_ptr(), sizes, [this, separate, bytes](void*) { deallocate(std::nullopt, bytes); },
          options);
    }
    const auto [offset, size] = *block;
    free_blocks_.erase(block);
    if (size > bytes) free_blocks_[offset + bytes] = size - bytes;
    record_use(bytes);
    return at::from_blob(
        static_cast<char*>(buffer_.data_ptr()) + offset, sizes,
        [this, offset = offset, bytes](void*) { deallocate(offset, bytes); }, options);
  }

  void release() {
    const std::lock_guard lock(mutex_);
    high_water_mark_ = in_use_;
    if (in_use_ > 0) return;
    buffer_.reset();
    free_blocks_.clear();
    capacity_ = 0;
  }

 private:
  // A key that is smallest for the best fit: the smallest block that is large enough.
  static size_t fit(size_t size, size_t bytes) { return size >= bytes ? size : SIZE_MAX; }

  // Replaces the buffer by one of the size of the high-water mark. If that allocation fails, the arena has no
  // buffer, and requests are allocated separately.
  void grow() {
    buffer_.reset();
    free_blocks_.clear();
    capacity_ = 0;
    const size_t size = std::exchange(high_water_mark_, 0);
    try {
      buffer_ = at::empty({static_cast<int64_t>(size)}, at::kByte);
    } catch (const c10::Error&) {
      return;
    }
    capacity_ = high_water_mark_ = size;
    free_blocks_[0] = size;
  }

  void record_use(size_t bytes) {
    in_use_ += bytes;
    high_water_mark_ = std::max(high_water_mark_, in_use_);
  }

  // `offset` is that of the block in the buffer, or nullopt if the memory was allocated separately. Adjacent
  // free blocks are merged.
  void deallocate(std::optional<size_t> offset, size_t bytes) {
    const std::lock_guard lock(mutex_);
    in_use_ -= bytes;
    if (!offset) return;
    auto block = free_blocks_.emplace(*offset, bytes).first;
    if (const auto next = std::next(block);
        next != free_blocks_.end() && block->first + block->second == next->first) {
      block->second += next->second;
      free_blocks_.erase(next);
    }
    if (block == free_blocks_.begin()) return;
    if (const auto previous = std::prev(block); previous->first + previous->second == block->first) {
      previous->second += block->second;
      free_blocks_.erase(block);
    }
  }

  std::mutex mutex_;
  at::Tensor buffer_;
  size_t capacity_ = 0;
  size_t in_use_ = 0;                     // bytes, including separate allocations
  size_t high_water_mark_ = 0;            // maximum of in_use_
  std::map<size_t, size_t> free_blocks_;  // maps the offset in the buffer to the size
};

}  // namespace

at::Tensor scratch(at::IntArrayRef sizes, const at::TensorOptions& options) {
  // Small tensors, and tensors on other devices, use the default allocators, which cache memory.
  constexpr int64_t kSmall = 4096;
  if (!options.device().is_cpu() || c10::multiply_integers(sizes) <= kSmall) return at::empty(sizes, options);
  return Arena::instance().allocate(sizes, options);
}

void release_scratch() { Arena::instance().release(); }

}  // namespace tensorion
