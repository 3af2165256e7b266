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

  // Three determinants, then seven, nine, eleven. Factors that a pass can use are kept in gram if so asked.
  // Returns false, and is exhausted, if a factorization fails.
  bool refine(GramMatrix& gram, bool keep_factors);
  // Whether there are no more shifts that the precision of the Gram matrix allows.
  bool exhausted(const GramMatrix& gram) const;

  // For any rounding within gram.rounding and gram.spectral_rounding.
  const NuclearBounds& bounds() const { return bounds_; }
  // For rounding whose errors do not conspire: they are taken as independent of the small eigenvectors, up to
  // what their trace shows, with a margin. Closer by sqrt(m) / 4 or so; for choices, not for promises.
  const NuclearBounds& likely() const { return likely_; }

 private:
  void certify(const GramMatrix& gram);

  // The spectral norm of the error that likely() allows for.
  double likely_error(const GramMatrix& gram) const;
  size_t done() const;  // shifts

  double epsilon_;
  bool failed_ = false;
  double likely_share_;          // of what rounding could do at worst
  double least_ = 0;             // a lower bound of the smallest eigenvalue of S
  std::vector<double> moments_;  // of the spectrum of S: what certificates combine
  NuclearBounds bounds_;
  NuclearBounds likely_;
};

}  // namespace tensorion
