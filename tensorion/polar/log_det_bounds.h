// Bounds of a nuclear norm from log-determinants alone.
//
// The log-determinant of S + c I costs a Cholesky factorization, a third of an inverse. For S = A A^T /
// lambda seven of them bound ||A||_* as closely as four inverses do.
#pragma once

#include "tensorion/polar/gram_matrix.h"
#include "tensorion/polar/spectrum_moments.h"

namespace tensorion {

class LogDetBounds {
 public:
  // `trace_error`: how far the trace of gram.matrix is from that of A A^T.
  LogDetBounds(const GramMatrix& gram, double trace_error);

  // Adds shifts: three at first, then up to seven, nine and eleven. Factors at poles of the rational filter
  // are added to `kept`, unless it is null. Returns false, and is exhausted, if a factorization fails.
  bool refine(const GramMatrix& gram, PoleFactors* kept);
  // True if there are no more shifts that the precision of the Gram matrix allows.
  bool exhausted(const GramMatrix& gram) const;

  // Hold for any rounding within gram.rounding and gram.spectral_rounding.
  const NuclearBounds& bounds() const { return bounds_; }
  // Tighter by about sqrt(m) / 4, but heuristic: they assume that rounding errors are independent of the
  // small eigenvectors, up to what their trace shows. For choices, not for promises.
  const NuclearBounds& heuristic_bounds() const { return heuristic_bounds_; }

 private:
  void certify(const GramMatrix& gram);
  // The spectral norm of the error that heuristic_bounds() allows for.
  double heuristic_error(const GramMatrix& gram) const;

  double epsilon_;
  bool failed_ = false;
  double heuristic_share_;     // of the largest effect that rounding can have
  double min_eigenvalue_ = 0;  // a lower bound of the smallest eigenvalue of S
  SpectrumMoments moments_;
  NuclearBounds bounds_;
  NuclearBounds heuristic_bounds_;
};

}  // namespace tensorion
