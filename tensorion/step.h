// One step of Tensorion for a list of tensors: Algorithm 1 of the paper.
//   M <- G + beta M
//   X <- fold(polar(unfold(M)))             with Nesterov momentum: of G + beta M
//   W <- (1 - eta gamma) W - eta scale X    the scale depends on the size m x n of the unfolded matrix
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "tensorion/lmo.h"
#include "tensorion/slices.h"

namespace tensorion {

struct StepOptions {
  double lr = 1e-3;
  double momentum = 0.95;
  bool nesterov = false;
  double weight_decay = 0.01;
  UnfoldingStrategy unfolding = "balanced";
  Slicing slicing;  // how a parameter is divided into independent tensors
  PolarOptions polar;
  std::string adjust_lr_fn = "match_rms_adamw";
  bool maximize = false;

  // A 0-dim tensor that replaces `lr`. It is used without synchronization with the device.
  std::optional<at::Tensor> lr_tensor;
  // A 0-dim tensor. If it is not 0, the step changes nothing. It is used without synchronization.
  std::optional<at::Tensor> found_inf;

  // Throws if a number is not finite or a name is unknown. Ranges are checked by TensorionOptions::check
  // only, because a scheduler may leave them by a rounding error: torch's LinearLR can end slightly below 0.
  void check() const;
};

// Returns the scale of the update, for an unfolding of size m x n:
//   "match_rms_adamw"     0.2 sqrt(max(m, n)), as in the paper: matches the RMS of AdamW's updates (Liu et
//                         al. 2025)
//   "original"            sqrt(max(1, m / n)) (Jordan 2024)
//   "spectral_unclamped"  sqrt(m / n), as in torch.optim.Muon
//   "conv_radius"         1 / sqrt(h w), if all modes after the first two are spatial: the spectral norm of
//                         the update as a convolution is then at most 1 (section 4.5 of the paper)
double adjusted_scale(const Unfolding& unfolding, const std::string& adjust_lr_fn);

// Updates parameters and momenta in place. The lists have equal lengths, and the tensors at an index have
// equal shapes. Each slice of a parameter is updated as if it were a parameter. If a gradient is not finite,
// its parameter becomes NaN; use `first_nonfinite` to check before. Tensors on accelerators are updated in
// batches, without synchronization if polar is "auto" or "newton_schulz". Throws, before anything is changed,
// if the lists, tensors or options are not valid.
void step(at::TensorList params, at::TensorList grads, at::TensorList momenta, const StepOptions& options,
          const UnfoldingChoices& choices = {});

// The three parts of a step, for distributed training in which ranks hold shards of the tensors or solve for
// different tensors. Called in sequence, they are equal to `step` up to rounding.
//   add_gradients     M <- G + beta M. Elementwise, so it works on shards. For Nesterov momentum, call it a
//                     second time on a copy of M.
//   directions        Returns scale X of whole tensors. The result is NaN if the target is not finite.
//                     directions_out writes to tensors of the same shapes instead.
//   apply_directions  W <- (1 - eta gamma) W - eta D. Elementwise, so it works on shards.
void add_gradients(at::TensorList momenta, at::TensorList grads, const StepOptions& options);
std::vector<at::Tensor> directions(at::TensorList targets, const StepOptions& options,
                                   const UnfoldingChoices& choices = {});
void directions_out(at::TensorList results, at::TensorList targets, const StepOptions& options,
                    const UnfoldingChoices& choices = {});
void apply_directions(at::TensorList params, at::TensorList directions, const StepOptions& options);

// Returns an estimate of the multiplications that `directions` needs for a tensor of this shape: m^2 (n + m)
// for an unfolding of size m x n with m <= n. For "online", this is the cost of the balanced unfolding.
double solving_cost(at::IntArrayRef shape, const UnfoldingStrategy& unfolding);

// Returns the index of the first tensor that contains NaN or infinity, or -1, as a 0-dim int64 tensor on the
// device of the first tensor.
at::Tensor first_nonfinite(at::TensorList tensors);

// Returns 1.0 if any tensor contains NaN or infinity and 0.0 otherwise, as a 0-dim float tensor on the device
// of the first tensor. Throws if the list is empty.
at::Tensor any_nonfinite(at::TensorList tensors);

}  // namespace tensorion
