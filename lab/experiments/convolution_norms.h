// The norms of kernels as convolutions (section 4.5 of the paper). For stride 1,
//   ||K||_sigma <= ||T_K||_2 <= sqrt(h w) ||K||_Sigma   and   ||K||_sigma <= ||K||_Sigma.
// The paper has ||K||_sigma on the right as well. That holds for the norm over complex vectors, but not
// always for the real one that is computed here: see docs/math.md.
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
  double spectral = 0;                          // ||K||_sigma, from below
  double relaxed_lower = 0, relaxed_upper = 0;  // bounds of ||K||_Sigma
  double convolution = 0;                       // ||T_K||_2 on size x size inputs that wrap around
  double root = 0;                              // sqrt(h w)
};

struct ConvolutionOptions {
  int64_t size = 16;    // of the inputs
  int64_t starts = 16;  // of the power method
  int64_t certified =
      40'000;  // up to so many elements the relaxed norm is computed, to a relative 1 %; beyond,
               // its bounds are ||K||_F^2 / ||K||_Sigma^dagger and the smallest ||K_(tau)||_2
};

// Of every tensor (out, in, h, w) with h w > 1, by name.
std::vector<ConvolutionNorms> convolution_norms(const std::map<std::string, at::Tensor>& kernels,
                                                const ConvolutionOptions& options);

nlohmann::ordered_json to_json(const ConvolutionNorms& norms);
ResultTable convolution_table(const std::vector<ConvolutionNorms>& norms, const ConvolutionOptions& options);

}  // namespace tensorion::lab
