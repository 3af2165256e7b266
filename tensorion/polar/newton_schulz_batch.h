// Newton-Schulz for accelerators: batches of matrices of one shape in half precision, without a read from the
// device and with few launches.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensorion/polar/newton_schulz.h"

namespace tensorion {

// Half precision, which loses less than 0.01 of the quality, unless the polynomials of the schedule are so
// steep at the upper end of their intervals ("cans"), or so many and not convergent (seven steps of "muon"),
// that its rounding errors grow from step to step.
at::ScalarType iteration_dtype(const Coefficients& steps);

// Entries of matrices of n columns are to be at most the reciprocal of this: then their Gram matrices do not
// leave the range of half precision.
double half_precision_margin(int64_t n);

struct NewtonSchulzBatch {
  at::Tensor x;         // (k, m, n)
  at::Tensor attained;  // <input, x> of each, (k); defined if it was asked for
};

// Runs the schedule on each matrix of x (k, m, n), m <= n, whose entries are moderate, see above. x is
// overwritten, and has the dtype to iterate in. Zero matrices stay zero; those with a NaN become NaN.
NewtonSchulzBatch newton_schulz_batch(const at::Tensor& x, const NewtonSchulzSchedule& schedule,
                                      bool with_attained = false);

// The polar factors of a (..., m, n) tensor on an accelerator, of any scale and either orientation.
at::Tensor newton_schulz_on_device(const at::Tensor& a, const NewtonSchulzSchedule& schedule);

}  // namespace tensorion
