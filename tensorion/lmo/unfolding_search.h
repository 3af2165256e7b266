// The search for the unfolding with the largest nuclear norm: the strategy "online".
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tensorion/polar/nuclear_norm_estimator.h"
#include "tensorion/unfolding.h"

namespace tensorion {

// An unfolding with a cheap bound of its nuclear norm.
struct Candidate {
  Unfolding unfolding;
  double upper;            // of the nuclear norm
  double heuristic_upper;  // see LogDetBounds
  bool traced = false;     // true if it was bounded by a partial trace of another Gram matrix
};

// The unfoldings of a family with the bound ||A||_* <= sqrt(min(m, n)) ||A||_F, by decreasing bound.
std::vector<Candidate> candidates(const at::Tensor& m, const Family& family = {});

// The unfolding of x: a view if possible, else a copy in scratch memory.
at::Tensor gather(const Unfolding& unfolding, const at::Tensor& x);

// An unfolding that bounds could not rule out.
struct Contender {
  Modes modes;
  Unfolding unfolding;
  bool transposed;   // true if the estimator has the transposed matrix
  int64_t last_use;  // the larger, the later
  NuclearNormEstimator estimator;

  at::Tensor fold(const at::Tensor& x) const { return unfolding.fold(transposed ? x.mT() : x); }
};

struct Selection {
  Contender winner;
  double others = 0;  // a certified upper bound of all other nuclear norms
  int64_t solved = 0;
};

// The unfolding of the family with the largest nuclear norm; of a tensor that is zero, the first. Bounds rule
// most unfoldings out; the choice between the others uses heuristic bounds (see LogDetBounds), and at last
// eigenvalues in double precision.
Selection select_unfolding(const at::Tensor& m, const Family& family = {});

}  // namespace tensorion
