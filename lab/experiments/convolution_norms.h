// The norms of kernels as convolutions (section 4.5 of the paper). For stride 1,
//   ||K||_sigma <= ||T_K||_2 <= sqrt(h w) ||K||_Sigma   and   ||K||_sigma <= ||K||_Sigma.
// The paper also states the upper bound with ||K||_sigma instead of ||K||_Sigma. That bound holds for the
// norm over complex vectors, but not always for the norm over real vectors, which is computed here. See
// docs/math.md.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/text/result_table.h"

namespace tensorion::lab {

struct ConvolutionNorms {
  std::string layer;
  std::vector<int64_t> shape;
  double spectral = 0;                          // lower bound of ||K||_sigma
  double relaxed_lower = 0, relaxed_upper = 0;  // bounds on ||K||_Sigma
  double convolution = 0;                       // ||T_K||_2 for periodic size x size inputs
  double root = 0;                              // sqrt(h w)
};

struct ConvolutionOptions {
  int64_t size = 16;    // height and width of the inputs
  int64_t starts = 16;  // number of starts of the power method
  // The relaxed norm is computed to a relative tolerance of 0.01 for kernels with at most this number of
  // elements. For larger kernels, its bounds are ||K||_F^2 / ||K||_Sigma^dagger and the smallest
  // ||K_(tau)||_2.
  int64_t certified = 40'000;
};

// Computes the norms of every tensor of shape (out, in, h, w) with h w > 1. `kernels` maps names to tensors.
std::vector<ConvolutionNorms> convolution_norms(const std::map<std::string, at::Tensor>& kernels,
                                                const ConvolutionOptions& options);

nlohmann::ordered_json to_json(const ConvolutionNorms& norms);
ResultTable convolution_table(const std::vector<ConvolutionNorms>& norms, const ConvolutionOptions& options);

}  // namespace tensorion::lab
