// Versions of at::parallel_for for functions that call ATen. The threads inherit the thread-local state of
// the caller, such as inference mode, excluded dispatch keys or the profiler.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>

#include <algorithm>
#include <atomic>

namespace tensorion {

// Calls f(first, last) for subranges of [begin, end) with at least `grain` elements. The arguments are those
// of at::parallel_for. If the range has no more than `grain` elements, f runs on the calling thread, outside
// of a parallel region.
template <typename F>
void parallel_for_with_tls(int64_t begin, int64_t end, int64_t grain, const F& f) {
  // Even when at::parallel_for runs its body serially, it marks the thread as inside a parallel region, which
  // disables threading in nested calls.
  if (end - begin <= std::max<int64_t>(grain, 1)) {
    if (begin < end) f(begin, end);
    return;
  }
  const at::ThreadLocalState state;
  at::parallel_for(begin, end, grain, [&](int64_t first, int64_t last) {
    const at::ThreadLocalStateGuard guard(state);
    f(first, last);
  });
}

// Calls f(i) for all i in [0, count) on this number of threads. The indices are distributed dynamically, in
// ascending order.
template <typename F>
void for_each_dynamically(int64_t count, int64_t threads, const F& f) {
  std::atomic<int64_t> next = 0;
  parallel_for_with_tls(0, std::min(threads, count), 1, [&](int64_t, int64_t) {
    for (int64_t i = next++; i < count; i = next++) f(i);
  });
}

}  // namespace tensorion
