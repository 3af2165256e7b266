#include "lab/experiments/convolution_norms.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lab/text/strings.h"
#include "tensorion/norms.h"
#include "tensorion/unfolding.h"

namespace tensorion::lab {
namespace {

constexpr double kRelaxedTolerance = 1e-2;

// Since ||K||_Sigma is the maximum of <M, K> over all M with ||M||_Sigma^dagger <= 1, every M gives a lower
// bound. This function uses M = K, scaled. The spectral norm of every unfolding is an upper bound.
NormBounds cheap_bounds(const at::Tensor& kernel) {
  double dual = 0, upper = std::numeric_limits<double>::infinity();
  for (const auto& modes : unfoldings(kernel.sizes())) {
    const auto values = at::linalg_svdvals(unfold(kernel, modes));
    dual = std::max(dual, values.sum(at::kDouble).item<double>());
    upper = std::min(upper, values.max().item<double>());
  }
  const double square = kernel.square().sum(at::kDouble).item<double>();
  return {square > 0 ? square / dual : 0, upper};
}

}  // namespace

std::vector<ConvolutionNorms> convolution_norms(const std::map<std::string, at::Tensor>& kernels,
                                                const ConvolutionOptions& options) {
  std::vector<ConvolutionNorms> all;
  for (const auto& [name, tensor] : kernels) {
    if (tensor.dim() != 4 || tensor.size(2) * tensor.size(3) == 1 || !tensor.is_floating_point()) continue;
    const auto kernel = tensor.detach().to(at::kFloat).contiguous();
    auto& norms = all.emplace_back();
    norms.layer = name;
    norms.shape = kernel.sizes().vec();
    norms.spectral = spectral_norm_from_below(kernel, options.starts);
    const auto bounds =
        kernel.numel() <= options.certified ? relaxed_norm(kernel, kRelaxedTolerance) : cheap_bounds(kernel);
    norms.relaxed_lower = std::max(bounds.lower, norms.spectral);
    norms.relaxed_upper = bounds.upper;
    const int64_t height = std::max(options.size, kernel.size(2)),
                  width = std::max(options.size, kernel.size(3));
    norms.convolution = conv_norm(kernel, {height, width});
    norms.root = std::sqrt(static_cast<double>(kernel.size(2) * kernel.size(3)));
  }
  return all;
}

nlohmann::ordered_json to_json(const ConvolutionNorms& norms) {
  return {{"layer", norms.layer},
          {"shape", norms.shape},
          {"spectral", norms.spectral},
          {"relaxed_lower", norms.relaxed_lower},
          {"relaxed_upper", norms.relaxed_upper},
          {"convolution", norms.convolution},
          {"root_times_spectral", norms.root * norms.spectral}};
}

ResultTable convolution_table(const std::vector<ConvolutionNorms>& norms, const ConvolutionOptions& options) {
  ResultTable table{
      .title = string_printf("Kernels as convolutions on %ld x %ld inputs", options.size, options.size),
      .header = {"layer", "shape", "||K||_sigma", "||K||_Sigma", "||T_K||_2", "sqrt(hw) ||K||_sigma",
                 "||T_K||_2 / ||K||_sigma"},
      .rows = {},
      .alignment = "llrrrrr"};
  for (const auto& layer : norms) {
    table.rows.push_back({layer.layer, c10::Join("x", layer.shape), string_printf("%.4g", layer.spectral),
                          string_printf("%.4g to %.4g", layer.relaxed_lower, layer.relaxed_upper),
                          string_printf("%.4g", layer.convolution),
                          string_printf("%.4g", layer.root * layer.spectral),
                          string_printf("%.3f", layer.convolution / layer.spectral)});
  }
  table.notes = {
      "(stride 1, periodic inputs; ||K||_sigma: lower bound from the power method; ||K||_Sigma: lower and "
      "upper "
      "bound)"};
  return table;
}

}  // namespace tensorion::lab
