// LAPACK inside of a parallel region.
//
// There MKL (2024.2) asks for threads that it is not given: QR waits for them without end, eigenvalues are
// wrong, and inverses of Cholesky factors are rounded in another way on threads that were started under
// another number of threads, so that results change from run to run. While a MklSingleThreadGuard lives, MKL works on
// the calling thread alone. Products need none.
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
