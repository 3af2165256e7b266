// The kernels of the operators that are functions of tensors: unfoldings, polar factors, the LMO and norms.
// Kernels whose names end with _meta compute only shapes and check the arguments.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tensorion/unfolding.h"

namespace tensorion::ops {

using at::Tensor;

Tensor unfold(const Tensor& x, at::IntArrayRef modes);
Tensor fold(const Tensor& matrix, at::IntArrayRef modes, c10::SymIntArrayRef shape);

// Returns the modes, rows and columns of the unfolding that a step uses for this shape, and the scale of the
// update. The choice of "online" depends on the values, so for it only the shape is checked.
std::tuple<std::vector<int64_t>, int64_t, int64_t, double> describe_unfolding(
    at::IntArrayRef shape, const std::string& unfolding, const std::string& adjust_lr_fn);

// Returns the shapes of the independent blocks in one slice of a parameter of this shape.
std::vector<std::vector<int64_t>> block_shapes(at::IntArrayRef shape, at::IntArrayRef batch_modes,
                                               at::IntArrayRef split_sizes);

std::string fallback_reason(at::IntArrayRef shape, int64_t min_order, at::IntArrayRef batch_modes,
                            at::IntArrayRef split_sizes);

Tensor polar(const Tensor& matrix, const std::string& method,
             const std::optional<c10::List<double>>& ns_coefficients, std::optional<int64_t> ns_steps);
Tensor polar_meta(const Tensor& matrix, const std::string& method,
                  const std::optional<c10::List<double>>& ns_coefficients, std::optional<int64_t> ns_steps);
std::vector<double> named_coefficients(const std::string& name);
std::vector<double> polar_express_schedule(int64_t steps);

// x, a mask of the modes that are rows, value, upper and solved.
using Lmo = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;
Lmo lmo(const Tensor& x, const std::string& unfolding, const std::string& polar,
        const tensorion::Family& family);
Lmo lmo_meta(const Tensor& x, const std::string& unfolding, const std::string& polar,
             const tensorion::Family& family);

// The gradients of nuclear_norm and dual_norm are registered in Python.
using Bounds = std::tuple<Tensor, Tensor>;  // lower and upper
Tensor nuclear_norm(const Tensor& x, at::IntArrayRef modes);
Tensor nuclear_norm_meta(const Tensor& x, at::IntArrayRef modes);
Tensor dual_norm(const Tensor& x, const tensorion::Family& family);
Tensor dual_norm_meta(const Tensor& x, const tensorion::Family& family);
Bounds relaxed_norm(const Tensor& x, double tol, const tensorion::Family& family);
Bounds relaxed_norm_meta(const Tensor& x, double tol, const tensorion::Family& family);
Bounds spectral_norm(const Tensor& x, int64_t restarts, const std::string& field);
Bounds spectral_norm_meta(const Tensor& x, int64_t restarts, const std::string& field);
Tensor conv_norm(const Tensor& kernel, at::IntArrayRef input_size, const std::string& padding,
                 at::IntArrayRef stride, at::IntArrayRef dilation);
Tensor conv_norm_meta(const Tensor& kernel, at::IntArrayRef input_size, const std::string& padding,
                      at::IntArrayRef stride, at::IntArrayRef dilation);

// Returns a flat, uninitialized tensor. On the CPU its memory is kept for later calls; see scratch_arena.h.
Tensor scratch(const Tensor& like, int64_t numel);

}  // namespace tensorion::ops
