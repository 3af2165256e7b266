// Sets the number of MKL threads to 1: for LAPACK calls inside a parallel region, and for small matrices.
//
// In a parallel region, MKL 2024.2 requests threads that it does not get. As a result, QR deadlocks,
// eigenvalues are wrong, and inverses from Cholesky factors are not reproducible: their rounding depends on
// the thread count at the time the calling thread was started. Matrix products are not affected.
//
// For small matrices, MKL starts threads although that takes longer than the computation.
#pragma once

#ifdef _OPENMP
#include <omp.h>
#endif

extern "C" int MKL_Set_Num_Threads_Local(int) __attribute__((weak));

namespace tensorion {

// Does nothing outside of parallel regions unless `is_small` is true, or if LAPACK is not MKL.
class MklSingleThreadGuard {
 public:
  explicit MklSingleThreadGuard(bool is_small = false) {
#ifdef _OPENMP
    if (MKL_Set_Num_Threads_Local && (is_small || omp_in_parallel())) {
      active_ = true;
      previous_ = MKL_Set_Num_Threads_Local(1);
    }
#endif
  }
  ~MklSingleThreadGuard() {
    if (active_) MKL_Set_Num_Threads_Local(previous_);
  }
  MklSingleThreadGuard(const MklSingleThreadGuard&) = delete;
  MklSingleThreadGuard& operator=(const MklSingleThreadGuard&) = delete;

 private:
  bool active_ = false;
  int previous_ = 0;
};

}  // namespace tensorion
