// One update of a list of tensors: Algorithm 1 of the paper.
//   M <- G + beta M
//   X <- fold(polar(unfold(M)))                  (Nesterov: of G + beta M)
//   W <- (1 - eta gamma) W - eta scale X         scale from the unfolded m x n matrix
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
  Slicing slicing;  // the independent tensors that each parameter consists of
  PolarOptions polar;
  std::string adjust_lr_fn = "match_rms_adamw";
  bool maximize = false;

  // Used instead of `lr` if it is given: a 0-dim tensor, read without a synchronization.
  std::optional<at::Tensor> lr_tensor;
  // A 0-dim tensor: if it is not 0, the call changes nothing. Decided on the device.
  std::optional<at::Tensor> found_inf;

  // Throws if a number is not finite or a name is unknown. Ranges are not checked here: a scheduler may end a
  // rounding error below 0, as torch's LinearLR does. TensorionOptions::check checks them once.
  void check() const;
};

// The factor of the learning rate:
//   "match_rms_adamw"     0.2 sqrt(max(m, n)): updates as large as AdamW's (Liu et al. 2025; the paper's)
//   "original"            sqrt(max(1, m / n)) (Jordan 2024)
//   "spectral_unclamped"  sqrt(m / n), as torch.optim.Muon's option of that name
//   "conv_radius"         1 / sqrt(h w), all modes after the first two being spatial: as a convolution, the
//                         update then has a spectral norm of at most 1 (section 4.5)
double adjusted_scale(const Unfolding& unfolding, const std::string& adjust_lr_fn);

// Updates params and momenta in place. The lists are of equal length, as are the shapes at each index. The
// slices of a parameter are updated as parameters of their own would be. Gradients that are not finite give
// parameters that are NaN: see `first_nonfinite`. Tensors on accelerators are updated in batches, and with
// polar = "auto" or "newton_schulz" without a read from the device.
void step(at::TensorList params, at::TensorList grads, at::TensorList momenta, const StepOptions& options,
          const UnfoldingChoices& choices = {});

// The parts of a step, for processes that share its work: each may hold other pieces of the tensors, or solve
// for other tensors. One after the other they are `step`, up to rounding.
//   add_gradients    M <- G + beta M (Nesterov: once more, on a copy of M); elementwise, so on pieces too
//   directions       D <- scale X, of whole tensors; not finite if M is not
//   apply_directions W <- (1 - eta gamma) W - eta D; elementwise
void add_gradients(at::TensorList momenta, at::TensorList grads, const StepOptions& options);
std::vector<at::Tensor> directions(at::TensorList targets, const StepOptions& options,
                                   const UnfoldingChoices& choices = {});
void apply_directions(at::TensorList params, at::TensorList directions, const StepOptions& options);

// What solving for a tensor of this shape costs, in products of entries: m^2 (n + m) on an unfolding of m x
// n, m <= n. For "online", that of the balanced one.
double solving_cost(at::IntArrayRef shape, const UnfoldingStrategy& unfolding);

// The number of the first tensor that holds a NaN or an infinity, or -1: a 0-dim int64 tensor on the device
// of the first tensor.
at::Tensor first_nonfinite(at::TensorList tensors);

// 1.0 if a tensor holds a NaN or an infinity, else 0.0: a 0-dim float tensor on the device of the first
// tensor.
at::Tensor any_nonfinite(at::TensorList tensors);

}  // namespace tensorion
