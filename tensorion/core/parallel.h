// at::parallel_for for work that calls ATen: the threads see what the caller has set for itself, such as
// inference mode or the profiler.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>

#include <algorithm>

namespace tensorion {

template <typename Work>
void parallel_for_with_tls(int64_t begin, int64_t end, int64_t grain, const Work& work) {
  // at::parallel_for would take what it does by itself for a parallel region, too, and all in it would use
  // one thread.
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
