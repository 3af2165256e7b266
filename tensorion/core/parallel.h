// at::parallel_for for bodies that call ATen: the threads inherit the caller's thread-local state, such as
// inference mode, excluded dispatch keys or the profiler.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>

#include <algorithm>

namespace tensorion {

template <typename Work>
void parallel_for_with_tls(int64_t begin, int64_t end, int64_t grain, const Work& work) {
  // Even when at::parallel_for runs its body serially, it marks the thread as inside a parallel region, which
  // disables threading in nested calls.
  if (end - begin <= std::max<int64_t>(grain, 1)) {
    if (begin < end) work(begin, end);
    return;
  }
  const at::ThreadLocalState state;
  at::parallel_for(begin, end, grain, [&](int64_t first, int64_t last) {
    const at::ThreadLocalStateGuard guard(state);
    work(first, last);
  });
}

}  // namespace tensorion
