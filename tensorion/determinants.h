// The nuclear norm of a matrix between bounds, from determinants alone.
//
// The log-determinant of S + c I costs a Cholesky factorization, a third of an inverse. For S = A A^T /
// lambda seven of them bound ||A||_* as well as four inverses do: see scripts/make_zolotarev_tables.py.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tensorion/gram_matrix.h"

namespace tensorion {

class Determinants {
 public:
  // `trace_error`: how far the trace of gram.matrix is from that of A A^T.
  Determinants(const GramMatrix& gram, double trace_error);

  // Three determinants, then seven, nine, eleven. Factors that a pass can use are kept in gram. Returns false
  // where there are no more or a factorization fails.
  bool refine(GramMatrix& gram);

  // For any rounding within gram.rounding.
  const NuclearBounds& bounds() const { return bounds_; }
  // For rounding whose errors do not conspire: they are taken as independent of the small eigenvectors, up to
  // what their trace shows, with a margin. Closer by sqrt(m) / 4 or so; for choices, not for promises.
  const NuclearBounds& likely() const { return likely_; }

 private:
  void certify(const GramMatrix& gram);

  double epsilon_;
  bool failed_ = false;
  double likely_share_;          // of what rounding could do at worst
  std::vector<double> moments_;  // of the spectrum of S: what certificates combine
  NuclearBounds bounds_;
  NuclearBounds likely_;
};

}  // namespace tensorion
