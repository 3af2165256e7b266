#include "tensorion/core/scratch_arena.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace tensorion {
namespace {

// One block of memory, given out in pieces. What does not fit is allocated on its own, and the next time that
// nothing is in use the block grows to what was needed at most.
class Arena {
 public:
  static Arena& instance() {
    // Never destroyed: a tensor may outlive static objects.
    static auto* const arena = new Arena;
    return *arena;
  }

  at::Tensor take(at::IntArrayRef sizes, const at::TensorOptions& options) {
    constexpr size_t kLine = 64;
    const size_t elements = c10::multiply_integers(sizes);
    const size_t bytes = (elements * options.dtype().itemsize() + kLine - 1) / kLine * kLine;
    const std::lock_guard lock(mutex_);
    if (in_use_ == 0 && most_ > capacity_) grow();
    const auto hole = std::min_element(holes_.begin(), holes_.end(), [bytes](const auto& a, const auto& b) {
      return rank(a.second, bytes) < rank(b.second, bytes);
    });
    if (hole == holes_.end() || hole->second < bytes) {
      const auto own = at::empty(sizes, options);  // If it throws, nothing has been counted yet.
      count(bytes);
      return at::from_blob(
          own.data_ptr(), sizes, [this, own, bytes](void*) { give_back(std::nullopt, bytes); }, options);
    }
    const auto [offset, size] = *hole;
    holes_.erase(hole);
    if (size > bytes) holes_[offset + bytes] = size - bytes;
    count(bytes);
    return at::from_blob(
        static_cast<char*>(block_.data_ptr()) + offset, sizes,
        [this, offset = offset, bytes](void*) { give_back(offset, bytes); }, options);
  }

  void release() {
    const std::lock_guard lock(mutex_);
    most_ = in_use_;
    if (in_use_ > 0) return;
    block_.reset();
    holes_.clear();
    capacity_ = 0;
  }

 private:
  // The smallest hole that is large enough comes first, then the others.
  static size_t rank(size_t hole, size_t bytes) { return hole >= bytes ? hole : SIZE_MAX; }

  // If there is no memory for a block of that size, pieces are allocated one by one as before.
  void grow() {
    block_.reset();
    holes_.clear();
    capacity_ = 0;
    const size_t size = std::exchange(most_, 0);
    try {
      block_ = at::empty({static_cast<int64_t>(size)}, at::kByte);
    } catch (const c10::Error&) {
      return;
    }
    capacity_ = most_ = size;
    holes_[0] = size;
  }

  void count(size_t bytes) {
    in_use_ += bytes;
    most_ = std::max(most_, in_use_);
  }

  void give_back(std::optional<size_t> offset, size_t bytes) {
    const std::lock_guard lock(mutex_);
    in_use_ -= bytes;
    if (!offset) return;
    auto hole = holes_.emplace(*offset, bytes).first;
    if (const auto next = std::next(hole);
        next != holes_.end() && hole->first + hole->second == next->first) {
      hole->second += next->second;
      holes_.erase(next);
    }
    if (hole == holes_.begin()) return;
    if (const auto previous = std::prev(hole); previous->first + previous->second == hole->first) {
      previous->second += hole->second;
      holes_.erase(hole);
    }
  }

  std::mutex mutex_;
  at::Tensor block_;
  size_t capacity_ = 0;
  size_t in_use_ = 0;               // also what is not in the block
  size_t most_ = 0;                 // that was in use at once
  std::map<size_t, size_t> holes_;  // of the block: offset to size
};

}  // namespace

at::Tensor scratch(at::IntArrayRef sizes, const at::TensorOptions& options) {
  // Elsewhere the allocator itself keeps memory, and so it does for small pieces here.
  constexpr int64_t kSmall = 4096;
  if (!options.device().is_cpu() || c10::multiply_integers(sizes) <= kSmall) return at::empty(sizes, options);
  return Arena::instance().take(sizes, options);
}

void release_scratch() { Arena::instance().release(); }

}  // namespace tensorion
