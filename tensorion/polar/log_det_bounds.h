// Bounds of a nuclear norm ||A||_* from log-determinants log det(I + S / c) of S = A A^T / lambda.
//
// Each bound is a linear combination of tr I, tr S, ||S||_F^2 and the log-determinants for several shifts c.
// A log-determinant costs one Cholesky factorization, a third of the cost of an inverse. Seven
// log-determinants give bounds as tight as four inverses do.
#pragma once

#include "tensorion/polar/gram_matrix.h"
#include "tensorion/polar/spectrum_moments.h"

namespace tensorion {

class LogDetBounds {
 public:
  // `trace_error` is |tr E|, the difference between gram.trace and ||A||_F^2.
  LogDetBounds(const GramMatrix& gram, double trace_error);

  // Tightens the bounds with more shifts: the first call uses 2, later calls 4, 7 and 11. Returns false if a
  // factorization fails; the object is then exhausted.
  bool refine(const GramMatrix& gram);
  // Returns true if there are no further shifts that the precision of the Gram matrix resolves.
  bool exhausted(const GramMatrix& gram) const;

  // The bounds hold for every error E with ||E||_F <= gram.rounding and ||E||_2 <= gram.spectral_rounding.
  const NuclearBounds& bounds() const { return bounds_; }
  // Heuristic bounds. Their allowance for rounding is smaller by a factor of about sqrt(m) / 4. They assume
  // that E is independent of the eigenvectors with small eigenvalues, except for the bias that shows in tr E.
  // They are used to choose an unfolding, and not in certificates.
  const NuclearBounds& heuristic_bounds() const { return heuristic_bounds_; }

 private:
  // Computes the bounds from the moments.
  void update_bounds(const GramMatrix& gram);
  // Returns the estimate of ||E||_2 that heuristic_bounds() allows for.
  double heuristic_error(const GramMatrix& gram) const;

  double epsilon_;
  bool failed_ = false;
  double heuristic_ratio_;     // of the heuristic to the certified allowance for rounding
  double min_eigenvalue_ = 0;  // lower bound of the smallest eigenvalue of S
  SpectrumMoments moments_;
  NuclearBounds bounds_;
  NuclearBounds heuristic_bounds_;
};

}  // namespace tensorion
