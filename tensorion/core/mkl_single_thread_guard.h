// QR, singular values and eigenvalues inside of a parallel region.
//
// There MKL (2024.2) asks for threads that it is not given: it waits for them without end, or returns wrong
// eigenvalues. While a MklSingleThreadGuard lives it works on the calling thread alone. Products and Cholesky
// factors need none.
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
