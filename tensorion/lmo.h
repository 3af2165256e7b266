// The linear minimization oracle of the relaxed spectral norm, with its certificate:
//   argmax <M, X> over ||X||_Sigma <= 1,
// whose optimum is the dual norm max over tau of ||M_(tau)||_*, attained by folding the polar factor of the
// unfolding with the largest nuclear norm.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "tensorion/polar.h"
#include "tensorion/unfolding.h"

namespace tensorion {

// Which unfolding to solve on: "balanced" (by shape, the paper's offline choice), "online" (the one with the
// largest nuclear norm, found anew each time), or a fixed set of modes.
class UnfoldingStrategy {
 public:
  UnfoldingStrategy(const std::string& name);  // NOLINT(google-explicit-constructor)
  UnfoldingStrategy(const char* name)          // NOLINT(google-explicit-constructor)
      : UnfoldingStrategy(std::string(name)) {}
  UnfoldingStrategy(Modes modes) : modes_(std::move(modes)) {}  // NOLINT(google-explicit-constructor)

  bool is_online() const { return online_; }

  // The unfolding of tensors of this shape; vectors are their own n x 1 unfolding. "online", whose choice
  // depends on values, is represented by the balanced unfolding here.
  Unfolding choose(at::IntArrayRef shape) const;

  // "balanced", "online" or "(0, 2)", and back.
  std::string str() const;
  static UnfoldingStrategy parse(const std::string& text);
  bool operator==(const UnfoldingStrategy&) const = default;

 private:
  bool online_ = false;
  std::optional<Modes> modes_;
};

// What "online" chose for each tensor, so that it can be kept for some steps: 0-dim tensors with the number
// of the unfolding in the list `unfoldings(shape)`, on the tensors' devices; of a parameter that consists of
// slices, one number for each. They are written if `decide`, else read. With none of them every call decides
// by itself.
struct UnfoldingChoices {
  at::TensorList tensors;
  bool decide = true;
};

struct LmoResult {
  at::Tensor x;
  Modes modes;         // the unfolding that was solved
  double value = 0;    // <M, x>, less if the method may exceed the unit ball
  double upper = 0;    // value <= optimum <= upper, up to rounding
  int64_t solved = 0;  // unfoldings on which a nuclear norm had to be computed
};

// `unfolding` "online" searches for the unfolding with the largest nuclear norm, but solves only those that
// bounds cannot rule out. The choice between unfoldings that are nearly equal uses heuristic bounds: no input
// is known on which it differs from that of a brute-force search by more than rounding. `value` and `upper`
// hold in any case. Of equals the first in the order of enumeration wins. It runs on the CPU, wherever the
// input is.
//
// With a `family` of unfoldings the norms are over it alone: "online" searches in it, and is the only
// strategy that goes with one.
LmoResult lmo(const at::Tensor& m, const UnfoldingStrategy& unfolding = "online",
              const PolarOptions& polar = {}, const Family& family = {});

}  // namespace tensorion
