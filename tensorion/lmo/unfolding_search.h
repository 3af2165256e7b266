// The strategy "online": finds argmax_tau ||M_(tau)||_* over the unfoldings tau of a tensor M.
//
// Candidates are visited by decreasing cheap upper bound. A candidate whose upper bound is below the largest
// lower bound so far is ruled out. The others become contenders, whose bounds are refined until one is left.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tensorion/polar/nuclear_norm_estimator.h"
#include "tensorion/unfolding.h"

namespace tensorion {

// An unfolding with a cheap upper bound of its nuclear norm.
struct Candidate {
  Unfolding unfolding;
  double upper;            // upper bound of the nuclear norm
  double heuristic_upper;  // heuristic upper bound (see LogDetBounds)
  bool traced = false;     // true if a partial trace of another Gram matrix has been used for the bounds
};

// Returns the unfoldings of a family with the bound ||A||_* <= sqrt(min(m, n)) ||A||_F, in decreasing order
// of the bound.
std::vector<Candidate> candidates(const at::Tensor& m, const Family& family = {});

// Returns the unfolding of x: a view if possible, else a copy in scratch memory.
at::Tensor gather(const Unfolding& unfolding, const at::Tensor& x);

// An unfolding that has not been ruled out, with refined bounds.
struct Contender {
  Unfolding unfolding;
  bool transposed;   // true if the estimator was given the transposed matrix
  int64_t last_use;  // logical time at which its matrices were last used
  NuclearNormEstimator estimator;

  // Folds a matrix of the size of the estimator's matrix.
  at::Tensor fold(const at::Tensor& x) const { return unfolding.fold(transposed ? x.mT() : x); }
};

struct Selection {
  Contender winner;
  double others = 0;   // upper bound of all other nuclear norms; it does not depend on heuristic bounds
  int64_t solved = 0;  // number of unfoldings whose Gram matrix was computed
};

// How nearly equal nuclear norms are compared.
enum class Comparison {
  kBounds,     // by bounds, and finally by eigenvalues in double precision
  kEstimates,  // by the middle of the bounds, whose errors nearly cancel in a difference: several times as
               // fast
};

// Returns the unfolding of the family with the largest nuclear norm, or the first candidate if the tensor is
// zero. Unfoldings are ruled out by heuristic bounds (see LogDetBounds). Ties go to the first in the order of
// `unfoldings`. With kEstimates, the norm may be a thousandth smaller than the largest one.
Selection select_unfolding(const at::Tensor& m, Comparison comparison, const Family& family = {});

}  // namespace tensorion
