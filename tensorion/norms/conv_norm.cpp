#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "tensorion/core/precision.h"
#include "tensorion/norms.h"
#include "tensorion/norms/norm_input.h"

namespace tensorion {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr int64_t kChunk = int64_t{1} << 20;  // complex numbers in memory at a time
constexpr int64_t kSquarings = 3;             // of the Gram matrix, in power_bounds
constexpr int64_t kBatch = 16;                // frequencies that are decomposed in one call

constexpr int64_t kBasis = 48;  // Lanczos vectors
constexpr int64_t kKept = 12;   // Ritz vectors that are kept at a restart
constexpr int64_t kMaxRestarts = 200;
constexpr double kResidual = 1e-8;  // relative residual of the eigenvalue of T^T T at which Lanczos stops
constexpr uint64_t kSeed = 0;

// The geometry of a convolution: one entry for each spatial mode.
struct Convolution {
  std::vector<int64_t> input_size, stride, dilation;
};

// Returns A A^H or A^H A, whichever is smaller.
at::Tensor gram(const at::Tensor& a) {
  return a.size(-2) <= a.size(-1) ? at::matmul(a, a.mH()) : at::matmul(a.mH(), a);
}

// Returns the angles 2 pi sum_j f_j k_j / n_j, with a row for each frequency f and a column for each tap k.
// The frequencies f and n - f of a real kernel are conjugates, so half of the last mode suffices.
at::Tensor angles(at::IntArrayRef taps, at::IntArrayRef input_size) {
  const auto modes = static_cast<int64_t>(input_size.size());
  auto turns = at::zeros({1, 1}, at::kDouble);
  for (int64_t j = 0; j < modes; ++j) {
    const int64_t n = input_size[j];
    const auto f = at::arange(j + 1 < modes ? n : n / 2 + 1, at::kLong);
    const auto k = at::arange(taps[j], at::kLong);
    const auto turn = at::remainder(at::outer(f, k), n).to(at::kDouble) / static_cast<double>(n);
    turns = (turns.view({turns.size(0), 1, turns.size(1), 1}) + turn.view({1, f.numel(), 1, k.numel()}))
                .reshape({turns.size(0) * f.numel(), turns.size(1) * k.numel()});
  }
  return turns * (2 * kPi);
}

// For each matrix of a batch, returns the upper bound (sum_i sigma_i^(2 p))^(1 / (2 p)) of the largest
// singular value, with p = 2^(kSquarings + 1). It is computed from the Frobenius norm of a power of the Gram
// matrix.
at::Tensor power_bounds(const at::Tensor& transfer) {
  const auto frobenius = [](const at::Tensor& a) {
    return at::linalg_vector_norm(a, 2, at::IntArrayRef{-2, -1}, /*keepdim=*/true);
  };
  auto power = gram(transfer);
  auto norm = frobenius(power);
  auto log_bound = norm.log();
  for (int64_t i = 1; i <= kSquarings; ++i) {
    power = power / at::where(norm > 0, norm, 1.0);
    power = at::matmul(power, power);
    norm = frobenius(power);
    log_bound = log_bound + norm.log() / std::ldexp(1.0, static_cast<int>(i));
  }
  return (log_bound / 2).exp().flatten();
}

// A circular convolution is block diagonal in the Fourier basis, with one c_out x c_in matrix for each
// frequency. The matrices are decomposed in the order of decreasing upper bounds of their norms, until the
// next bound is not larger than the largest norm found.
double circular_norm(const at::Tensor& kernel, at::IntArrayRef input_size) {
  const auto phases = angles(kernel.sizes().slice(2), input_size);
  const auto taps = kernel.flatten(2).permute({2, 0, 1}).flatten(1);  // taps x (c_out c_in)
  const auto transfer = [&](const at::Tensor& angle) {
    return at::complex(at::matmul(angle.cos(), taps), at::matmul(angle.sin(), taps))
        .view({-1, kernel.size(0), kernel.size(1)});
  };
  std::vector<at::Tensor> chunks;
  for (const auto& angle : phases.split(std::max<int64_t>(1, kChunk / taps.size(1)))) {
    chunks.push_back(power_bounds(transfer(angle)));
  }
  const auto [bounds, order] = at::cat(chunks).sort(/*dim=*/0, /*descending=*/true);
  double largest = 0;
  for (int64_t i = 0; i < order.numel(); i += kBatch) {
    if (bounds[i].item<double>() <= largest) break;
    const auto next = order.slice(0, i, i + kBatch);
    const auto eigenvalues = at::linalg_eigvalsh(gram(transfer(phases.index_select(0, next))));
    largest = std::max(largest, std::sqrt(std::max(0.0, eigenvalues.max().item<double>())));
  }
  return largest;
}

// Returns the largest eigenvalue of a symmetric positive semidefinite operator on R^size. Uses the Lanczos
// method with full orthogonalization and thick restarts: the leading Ritz vectors are kept, so that a cluster
// of large eigenvalues does not slow down convergence.
double largest_eigenvalue(const std::function<at::Tensor(const at::Tensor&)>& apply, int64_t size) {
  const int64_t width = std::min(kBasis, size);
  const auto options = at::TensorOptions().dtype(at::kDouble);
  auto basis = at::zeros({width, size}, options);  // orthonormal rows
  auto projected = at::zeros({width, width}, options);
  auto next = at::randn({size}, at::detail::createCPUGenerator(kSeed), options);
  double length = at::linalg_vector_norm(next).item<double>();
  double ritz = 0;
  int64_t kept = 0;
  for (int64_t restart = 0; restart <= kMaxRestarts; ++restart) {
    int64_t used = kept;
    while (used < width && length > 0) {
      basis[used].copy_(next / length);
      const auto rows = basis.narrow(0, 0, ++used);
      next = apply(basis[used - 1]);
      const double image = at::linalg_vector_norm(next).item<double>();
      for (int pass = 0; pass < 2; ++pass) {
        const auto overlap = at::mv(rows, next);
        projected.select(1, used - 1).narrow(0, 0, used).add_(overlap);
        next = next - at::mv(rows.t(), overlap);
      }
      length = at::linalg_vector_norm(next).item<double>();
      // The basis is invariant if only rounding errors are left.
      if (length <= std::numeric_limits<double>::epsilon() * static_cast<double>(width) * image) length = 0;
    }
    // Only the upper triangle of `projected` is filled.
    const auto [values, vectors] =
        at::linalg_eigh(projected.narrow(0, 0, used).narrow(1, 0, used), /*UPLO=*/"U");
    ritz = values[-1].item<double>();
    const double residual = length * std::abs(vectors[used - 1][used - 1].item<double>());
    if (residual <= kResidual * ritz) break;
    kept = std::min(kKept, used - 1);
    const auto leading = vectors.narrow(1, used - kept, kept);
    basis.narrow(0, 0, kept).copy_(at::matmul(leading.t(), basis.narrow(0, 0, used)));
    projected.zero_();
    projected.diagonal().narrow(0, 0, kept).copy_(values.narrow(0, used - kept, kept));
  }
  return ritz;
}

// Computes the norm from products with T and T^T only.
double iterative_norm(const at::Tensor& kernel, const Convolution& convolution, bool circular) {
  const auto modes = static_cast<int64_t>(convolution.input_size.size());
  // source[j] has, for each index of the padded input along mode j, the index of the input that is read
  // there.
  std::vector<at::Tensor> source;
  std::vector<int64_t> padded;
  for (int64_t j = 0; j < modes; ++j) {
    const int64_t reach = convolution.dilation[j] * (kernel.size(2 + j) - 1);
    const int64_t size = convolution.input_size[j];
    padded.push_back(size + reach);
    const auto index = at::arange(size + reach, at::kLong) - reach / 2;
    // Index `size` refers to a zero that is appended to the input.
    source.push_back(circular ? at::remainder(index, size)
                              : at::where((index >= 0).logical_and(index < size), index, size));
  }
  const std::vector<int64_t> zeros(modes, 0);
  const auto with_zero = [&](const at::Tensor& x, int64_t mode) {
    auto shape = x.sizes().vec();
    shape[mode] = 1;
    return at::cat({x, at::zeros(shape, x.options())}, mode);
  };
  const auto forward = [&](at::Tensor x) {
    for (int64_t j = 0; j < modes; ++j) x = with_zero(x, 2 + j).index_select(2 + j, source[j]);
    return at::convolution(x, kernel, {}, convolution.stride, zeros, convolution.dilation, false, zeros, 1);
  };
  const auto adjoint = [&](const at::Tensor& y) {
    std::vector<int64_t> output_padding;  // elements at the end that the stride skips
    for (int64_t j = 0; j < modes; ++j) {
      const int64_t reach = convolution.dilation[j] * (kernel.size(2 + j) - 1);
      output_padding.push_back(padded[j] - ((y.size(2 + j) - 1) * convolution.stride[j] + reach + 1));
    }
    auto x = at::convolution(y, kernel, {}, convolution.stride, zeros, convolution.dilation, true,
                             output_padding, 1);
    for (int64_t j = 0; j < modes; ++j) {
      auto shape = x.sizes().vec();
      shape[2 + j] = convolution.input_size[j] + 1;
      x = at::zeros(shape, x.options()).index_add_(2 + j, source[j], x).narrow(2 + j, 0, shape[2 + j] - 1);
    }
    return x;
  };
  std::vector<int64_t> shape{1, kernel.size(1)};
  shape.insert(shape.end(), convolution.input_size.begin(), convolution.input_size.end());
  // Use T T^T or T^T T, whichever is smaller.
  const auto output = forward(at::zeros(shape, kernel.options()));
  const bool by_output = output.numel() < c10::multiply_integers(shape);
  if (by_output) shape = output.sizes().vec();
  const auto apply = [&](const at::Tensor& v) {
    const auto x = v.view(shape);
    return (by_output ? forward(adjoint(x)) : adjoint(forward(x))).reshape({-1});
  };
  return std::sqrt(largest_eigenvalue(apply, c10::multiply_integers(shape)));
}

// Returns the kernel with dilation - 1 zeros between adjacent taps.
at::Tensor dilated(const at::Tensor& kernel, at::IntArrayRef dilation) {
  auto result = kernel;
  for (int64_t j = 0; j < static_cast<int64_t>(dilation.size()); ++j) {
    auto shape = result.sizes().vec();
    shape[2 + j] = dilation[j] * (shape[2 + j] - 1) + 1;
    auto wider = at::zeros(shape, result.options());
    wider.slice(2 + j, 0, std::nullopt, dilation[j]).copy_(result);
    result = wider;
  }
  return result;
}

// Expands an argument to one entry for each spatial mode. Throws if its length or an entry is not valid.
std::vector<int64_t> per_mode(at::IntArrayRef given, const at::Tensor& kernel, const char* name) {
  const auto modes = kernel.dim() - 2;
  TORCH_CHECK_VALUE(given.size() == 1 || static_cast<int64_t>(given.size()) == modes,
                    "[tensorion.conv_norm] expected ", name, " of ", modes,
                    modes > 1 ? " entries, or one entry," : " entry", " for a kernel of shape ",
                    kernel.sizes(), ", got ", given);
  for (const int64_t size : given) {
    TORCH_CHECK_VALUE(size >= 1, "[tensorion.conv_norm] ", name, " must be at least 1, got ", given);
  }
  return given.size() == 1 ? std::vector<int64_t>(modes, given[0]) : given.vec();
}

}  // namespace

double conv_norm(const at::Tensor& kernel, at::IntArrayRef input_size, const std::string& padding,
                 at::IntArrayRef stride, at::IntArrayRef dilation) {
  const NoAutocastGuard no_autocast;
  const int exponent = checked_exponent(kernel, "conv_norm");
  TORCH_CHECK_VALUE(kernel.dim() >= 3 && kernel.dim() <= 5,
                    "[tensorion.conv_norm] expected a kernel (c_out, c_in, size...) with 1, 2 or 3 spatial "
                    "modes, got shape ",
                    kernel.sizes());
  const Convolution convolution{per_mode(input_size, kernel, "input sizes"),
                                per_mode(stride, kernel, "strides"), per_mode(dilation, kernel, "dilations")};
  TORCH_CHECK_VALUE(padding == "circular" || padding == "zeros",
                    "[tensorion.conv_norm] padding must be \"circular\" or \"zeros\", got \"", padding, "\"");
  if (kernel.numel() == 0) return 0;
  const auto values =
      scale_by_power_of_two(kernel.detach().to(at::kCPU, at::kDouble), -exponent).contiguous();
  const bool has_stride = std::any_of(convolution.stride.begin(), convolution.stride.end(),
                                      [](int64_t step) { return step > 1; });
  const double norm = padding == "circular" && !has_stride
                          ? circular_norm(dilated(values, convolution.dilation), convolution.input_size)
                          : iterative_norm(values, convolution, padding == "circular");
  return std::ldexp(norm, exponent);
}

}  // namespace tensorion
