#include "python/src/functions.h"

#include <ATen/ATen.h>

#include "tensorion/core/scratch_arena.h"
#include "tensorion/lmo.h"
#include "tensorion/norms.h"
#include "tensorion/optimizer.h"
#include "tensorion/param_groups.h"
#include "tensorion/polar.h"
#include "tensorion/slices.h"
#include "tensorion/step.h"

namespace tensorion::ops {
namespace {

// Returns a 0-dim tensor on the device of `like`. Since accelerators may lack float64, kDouble becomes kFloat
// there, unless `like` itself is float64.
Tensor number(double value, at::ScalarType dtype, const Tensor& like) {
  const bool in_single = dtype == at::kDouble && !like.is_cpu() && like.scalar_type() != at::kDouble;
  return at::full({}, value, at::TensorOptions().dtype(in_single ? at::kFloat : dtype).device(like.device()));
}

// For Meta kernels. without_elements() returns an empty tensor with the dtype and number of modes of `x`, on
// which functions run only their checks. uninitialized() returns a contiguous result with the shape of `x`.
Tensor without_elements(const Tensor& x) {
  return at::zeros(std::vector<int64_t>(x.dim(), 0), at::TensorOptions().dtype(x.scalar_type()));
}
Tensor uninitialized(const Tensor& x) { return at::empty_symint(x.sym_sizes(), x.options()); }
Tensor uninitialized_number(at::ScalarType dtype, const Tensor& like) {
  return at::empty({}, like.options().dtype(dtype));
}

// Returns a contiguous `result` that does not alias `input`. Under vmap, tensors have no storage to compare.
Tensor owned(const Tensor& result, const Tensor& input) {
  if (result.has_storage() && !result.is_alias_of(input)) return result.contiguous();
  return result.clone(at::MemoryFormat::Contiguous);
}

Bounds bounds(const tensorion::NormBounds& norm, const Tensor& x) {
  return {number(norm.lower, at::kDouble, x), number(norm.upper, at::kDouble, x)};
}
Bounds uninitialized_bounds(const Tensor& x) {
  return {uninitialized_number(at::kDouble, x), uninitialized_number(at::kDouble, x)};
}

}  // namespace

Tensor unfold(const Tensor& x, at::IntArrayRef modes) { return owned(tensorion::unfold(x, modes), x); }

Tensor fold(const Tensor& matrix, at::IntArrayRef modes, c10::SymIntArrayRef shape) {
  std::vector<int64_t> sizes;
  for (const auto& size : shape) sizes.push_back(size.guard_int(__FILE__, __LINE__));
  return owned(tensorion::fold(matrix, modes, sizes), matrix);
}

std::tuple<std::vector<int64_t>, int64_t, int64_t, double> describe_unfolding(
    at::IntArrayRef shape, const std::string& unfolding, const std::string& adjust_lr_fn) {
  const auto strategy = UnfoldingStrategy::parse(unfolding);
  const auto chosen = strategy.choose(shape);
  if (strategy.is_online()) return {{}, 0, 0, 0};
  return {chosen.modes(), chosen.rows(), chosen.cols(), tensorion::adjusted_scale(chosen, adjust_lr_fn)};
}

std::vector<std::vector<int64_t>> block_shapes(at::IntArrayRef shape, at::IntArrayRef batch_modes,
                                               at::IntArrayRef split_sizes) {
  return tensorion::Slicing{batch_modes.vec(), split_sizes.vec()}.block_shapes(shape);
}

std::string fallback_reason(at::IntArrayRef shape, int64_t min_order, at::IntArrayRef batch_modes,
                            at::IntArrayRef split_sizes) {
  tensorion::TensorionOptions options;
  options.min_order(min_order).batch_modes(batch_modes.vec()).split_sizes(split_sizes.vec());
  return tensorion::fallback_reason(shape, options);
}

Tensor polar(const Tensor& matrix, const std::string& method,
             const std::optional<c10::List<double>>& ns_coefficients, std::optional<int64_t> ns_steps) {
  PolarOptions options{method, std::nullopt, ns_steps};
  if (ns_coefficients) options.ns_coefficients = tensorion::unflatten(ns_coefficients->vec());
  return tensorion::polar(matrix, options).contiguous();
}

Tensor polar_meta(const Tensor& matrix, const std::string& method,
                  const std::optional<c10::List<double>>& ns_coefficients, std::optional<int64_t> ns_steps) {
  polar(without_elements(matrix), method, ns_coefficients, ns_steps);
  return uninitialized(matrix);
}

std::vector<double> named_coefficients(const std::string& name) {
  return tensorion::flatten(tensorion::named_coefficients(name));
}

std::vector<double> polar_express_schedule(int64_t steps) {
  return tensorion::flatten(tensorion::polar_express_schedule(steps));
}

Lmo lmo(const Tensor& x, const std::string& unfolding, const std::string& polar,
        const tensorion::Family& family) {
  PolarOptions options;
  options.method = polar;
  const auto result = tensorion::lmo(x, UnfoldingStrategy::parse(unfolding), options, family);
  auto rows = at::zeros({x.dim()}, at::kBool);
  for (const int64_t mode : result.modes) rows[mode] = true;
  return {result.x.contiguous(), rows.to(x.device()), number(result.value, at::kDouble, x),
          number(result.upper, at::kDouble, x), number(static_cast<double>(result.solved), at::kLong, x)};
}

Lmo lmo_meta(const Tensor& x, const std::string& unfolding, const std::string& polar,
             const tensorion::Family& family) {
  lmo(without_elements(x), unfolding, polar, family);
  return {uninitialized(x), at::empty({x.dim()}, x.options().dtype(at::kBool)),
          uninitialized_number(at::kDouble, x), uninitialized_number(at::kDouble, x),
          uninitialized_number(at::kLong, x)};
}

Tensor nuclear_norm(const Tensor& x, at::IntArrayRef modes) {
  return tensorion::nuclear_norm(x.detach(), modes);
}
Tensor nuclear_norm_meta(const Tensor& x, at::IntArrayRef modes) {
  tensorion::nuclear_norm(without_elements(x), modes);
  return uninitialized_number(x.scalar_type(), x);
}

Tensor dual_norm(const Tensor& x, const tensorion::Family& family) {
  return tensorion::dual_norm(x.detach(), family);
}
Tensor dual_norm_meta(const Tensor& x, const tensorion::Family& family) {
  dual_norm(without_elements(x), family);
  return uninitialized_number(x.scalar_type(), x);
}

Bounds relaxed_norm(const Tensor& x, double tol, const tensorion::Family& family) {
  return bounds(tensorion::relaxed_norm(x, tol, family), x);
}
Bounds relaxed_norm_meta(const Tensor& x, double tol, const tensorion::Family& family) {
  relaxed_norm(without_elements(x), tol, family);
  return uninitialized_bounds(x);
}

Bounds spectral_norm(const Tensor& x, int64_t restarts, const std::string& field) {
  return bounds(tensorion::spectral_norm(x, restarts, field), x);
}
Bounds spectral_norm_meta(const Tensor& x, int64_t restarts, const std::string& field) {
  spectral_norm(without_elements(x), restarts, field);
  return uninitialized_bounds(x);
}

Tensor conv_norm(const Tensor& kernel, at::IntArrayRef input_size, const std::string& padding,
                 at::IntArrayRef stride, at::IntArrayRef dilation) {
  return number(tensorion::conv_norm(kernel, input_size, padding, stride, dilation), at::kDouble, kernel);
}
Tensor conv_norm_meta(const Tensor& kernel, at::IntArrayRef input_size, const std::string& padding,
                      at::IntArrayRef stride, at::IntArrayRef dilation) {
  conv_norm(without_elements(kernel), input_size, padding, stride, dilation);
  return uninitialized_number(at::kDouble, kernel);
}

Tensor scratch(const Tensor& like, int64_t numel) { return tensorion::scratch({numel}, like.options()); }

}  // namespace tensorion::ops
