// Replaces torch's header of this name in ThreadSanitizer builds. ThreadSanitizer does not see how gcc's
// OpenMP starts and joins threads and would report every parallel loop. So this header runs the loops on
// std::threads, which ThreadSanitizer supports. The bodies of the loops do not change.
#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

#define INTRA_OP_PARALLEL

namespace at::internal {

template <typename F>
void invoke_parallel(int64_t begin, int64_t end, int64_t grain_size, const F& f) {
  int64_t count = at::get_num_threads();
  if (grain_size > 0) count = std::min(count, divup(end - begin, grain_size));
  const int64_t chunk = divup(end - begin, count);
  std::vector<std::exception_ptr> errors(count);
  std::vector<std::thread> threads;
  for (int64_t id = 0; id < count; ++id) {
    const int64_t first = begin + id * chunk;
    if (first >= end) break;
    threads.emplace_back([=, &f, &error = errors[id]] {
      lazy_init_num_threads();
      omp_set_num_threads(1);  // nested loops are not parallel
      try {
        const ThreadIdGuard guard(static_cast<int>(id));
        f(first, std::min(end, first + chunk));
      } catch (...) {
        error = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace at::internal
