// The linear minimization oracle (LMO) of the relaxed spectral norm, with bounds of its optimum:
//   argmax <M, X> subject to ||X||_Sigma <= 1.
// The optimum is the dual norm max_tau ||M_(tau)||_*. It is attained by the polar factor of the unfolding
// with the largest nuclear norm, folded back to the shape of M.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "tensorion/polar.h"
#include "tensorion/unfolding.h"

namespace tensorion {

// How the unfolding of a tensor is chosen:
//   "balanced"  by shape: the unfolding that is closest to square (the paper's offline choice)
//   "online"    by value: the unfolding with the largest nuclear norm, searched for in every call
//   Modes       a fixed set of modes
class UnfoldingStrategy {
 public:
  // Throws if the name is neither "balanced" nor "online".
  UnfoldingStrategy(const std::string& name);  // NOLINT(google-explicit-constructor)
  UnfoldingStrategy(const char* name)          // NOLINT(google-explicit-constructor)
      : UnfoldingStrategy(std::string(name)) {}
  UnfoldingStrategy(Modes modes) : modes_(std::move(modes)) {}  // NOLINT(google-explicit-constructor)

  bool is_online() const { return online_; }

  // Returns the unfolding of tensors of this shape. A vector of n elements has the unfolding n x 1. The
  // choice of "online" depends on values, so this function returns the balanced unfolding for it. Throws if
  // the shape does not have the fixed modes.
  Unfolding choose(at::IntArrayRef shape) const;

  // Converts to and from text: "balanced", "online" or modes such as "(0, 2)". `parse` throws if the text is
  // none of these.
  std::string str() const;
  static UnfoldingStrategy parse(const std::string& text);
  bool operator==(const UnfoldingStrategy&) const = default;

 private:
  bool online_ = false;
  std::optional<Modes> modes_;
};

// The unfoldings that "online" chose, stored so that later steps can reuse them. There is one 0-dim tensor
// for each tensor, on the same device. It holds the index of the unfolding in `unfoldings(shape)`. A
// parameter that consists of slices has a 1-dim tensor with one index for each slice. If `decide` is true,
// the step chooses and writes the indices; otherwise it reads them. If `tensors` is empty, every step chooses
// and nothing is stored.
struct UnfoldingChoices {
  at::TensorList tensors;
  bool decide = true;
};

struct LmoResult {
  at::Tensor x;
  Modes modes;         // the unfolding of which `x` is the polar factor
  double value = 0;    // <M, x>, divided by a bound of the spectral norm of x_(modes) if that exceeds 1
  double upper = 0;    // value <= optimum <= upper, up to rounding
  int64_t solved = 0;  // number of unfoldings whose nuclear norm had to be computed
};

// Solves the linear minimization oracle for the tensor `m`.
//
// With "online", bounds rule out most unfoldings, and the nuclear norm is computed for the remaining ones
// only. The choice between nearly equal unfoldings uses heuristic bounds. No input is known for which the
// result differs from that of an exhaustive search by more than rounding. `value` and `upper` do not depend
// on the heuristic. Ties go to the first unfolding in the order of `unfoldings`.
//
// If `family` is not empty, the norms are defined by its unfoldings only. It requires "online".
//
// The computation runs on the CPU. The result is on the device of `m`. Throws if `m` is not a dense, real,
// finite tensor with at least one mode, or if an option is not valid.
LmoResult lmo(const at::Tensor& m, const UnfoldingStrategy& unfolding = "online",
              const PolarOptions& polar = {}, const Family& family = {});

}  // namespace tensorion
