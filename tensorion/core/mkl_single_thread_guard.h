// Keeps MKL's LAPACK on the calling thread while it is called inside a parallel region.
//
// There MKL (2024.2) requests threads that it does not get: QR waits for them forever, eigenvalues are wrong,
// and inverses of Cholesky factors round differently on threads that were started under another thread count,
// so that results change from run to run. Matrix products are not affected.
#pragma once

#ifdef _OPENMP
#include <omp.h>
#endif

extern "C" int MKL_Set_Num_Threads_Local(int) __attribute__((weak));

namespace tensorion {

class MklSingleThreadGuard {
 public:
  MklSingleThreadGuard() {
#ifdef _OPENMP
    if (MKL_Set_Num_Threads_Local && omp_in_parallel()) {
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
