#include "lab/experiments/tightness.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "lab/text/strings.h"
#include "tensorion/norms.h"
#include "tensorion/polar.h"

namespace tensorion::lab {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

struct Range {
  double mean = 0, min = 0, max = 0;
};

Range range(const std::vector<double>& values) {
  Range out{0, values.front(), values.front()};
  for (const double value : values) {
    out.mean += value / static_cast<double>(values.size());
    out.min = std::min(out.min, value);
    out.max = std::max(out.max, value);
  }
  return out;
}

Range range(const std::vector<Tightness>& values, double Tightness::* member) {
  std::vector<double> members;
  for (const auto& value : values) members.push_back(value.*member);
  return range(members);
}

double share_of_other_sets(const std::vector<Tightness>& values) {
  const auto count = std::count_if(values.begin(), values.end(),
                                   [](const Tightness& value) { return value.online != value.balanced; });
  return static_cast<double>(count) / static_cast<double>(values.size());
}

constexpr size_t kKernelUnfoldings = 7;  // number of unfoldings of a kernel whose modes are all larger than 1
constexpr size_t kWithHeight = 5;        // index of {0,2}, whose rows include the height
constexpr size_t kWithWidth = 6;         // index of {0,3}, whose rows include the width

// Returns ||M_(0,3)||_* / ||M_(0,2)||_* - 1 for each kernel: how much larger the nuclear norm is if the rows
// include the width instead of the height.
std::vector<double> width_over_height(const std::vector<Tightness>& values) {
  std::vector<double> out;
  for (const auto& value : values) {
    const auto& norms = value.nuclear_norms;
    if (norms.size() == kKernelUnfoldings) out.push_back(norms[kWithWidth] / norms[kWithHeight] - 1);
  }
  return out;
}

// Formats modes as in the paper, which counts from 1: "{1,3}".
std::string paper_set(Modes modes) {
  for (auto& mode : modes) ++mode;
  return "{" + c10::Join(",", modes) + "}";
}

}  // namespace

Tightness measure_tightness(const at::Tensor& momentum, int64_t starts) {
  const auto m = momentum.detach();
  Tightness out;
  out.shape = m.sizes().vec();
  out.balanced = balanced_unfolding(out.shape);
  for (const auto& modes : unfoldings(out.shape)) {
    const auto norm = tensorion::nuclear_norm(m, modes).item<double>();
    out.nuclear_norms.push_back(norm);
    if (norm > out.online_norm) {
      out.online_norm = norm;
      out.online = modes;
    }
    if (modes == out.balanced) out.balanced_norm = norm;
  }
  TORCH_CHECK_VALUE(out.online_norm > 0, "[tensorion.tightness] the momentum must not be zero");
  out.gap = (out.online_norm - out.balanced_norm) / out.online_norm;

  PolarOptions options;
  options.method = "svd";
  const Unfolding unfolding(out.shape, out.online);
  const auto matrix = polar(unfolding.unfold(m), options);
  const auto x = unfolding.fold(matrix);
  out.spectral = spectral_norm_from_below(x, starts);
  out.relaxed_lower = (m * x).sum(at::kDouble).item<double>() / out.online_norm;
  out.relaxed_upper = at::linalg_matrix_norm(matrix, 2).item<double>();
  return out;
}

ordered_json to_json(const Tightness& value) {
  return {{"step", value.step},
          {"layer", value.layer},
          {"shape", value.shape},
          {"online", value.online},
          {"balanced", value.balanced},
          {"nuclear_norms", value.nuclear_norms},
          {"online_norm", value.online_norm},
          {"balanced_norm", value.balanced_norm},
          {"gap", value.gap},
          {"spectral", value.spectral},
          {"relaxed_lower", value.relaxed_lower},
          {"relaxed_upper", value.relaxed_upper}};
}

Tightness tightness_from_json(const json& json) {
  return {.step = json.at("step").get<int64_t>(),
          .layer = json.at("layer").get<std::string>(),
          .shape = json.at("shape").get<std::vector<int64_t>>(),
          .online = json.at("online").get<Modes>(),
          .balanced = json.at("balanced").get<Modes>(),
          .nuclear_norms = json.at("nuclear_norms").get<std::vector<double>>(),
          .online_norm = json.at("online_norm").get<double>(),
          .balanced_norm = json.at("balanced_norm").get<double>(),
          .gap = json.at("gap").get<double>(),
          .spectral = json.at("spectral").get<double>(),
          .relaxed_lower = json.at("relaxed_lower").get<double>(),
          .relaxed_upper = json.at("relaxed_upper").get<double>()};
}

ResultTable tightness_table(const std::vector<Tightness>& values) {
  const auto gap = range(values, &Tightness::gap);
  const auto spectral = range(values, &Tightness::spectral);
  const auto lower = range(values, &Tightness::relaxed_lower);
  const auto upper = range(values, &Tightness::relaxed_upper);
  ResultTable table{.title = "Momenta of the kernels: " + std::to_string(values.size()) + " tensors",
                    .header = {"quantity", "mean", "min", "max", "paper"},
                    .rows = {},
                    .alignment = "lrrrl"};
  const auto add = [&](const std::string& name, const Range& of, const std::string& paper) {
    table.rows.push_back({name, string_printf("%.4f", of.mean), string_printf("%.4f", of.min),
                          string_printf("%.4f", of.max), paper});
  };
  add("relative gap, balanced to online", gap, "mean 0.0039, max 0.0732");
  add("||X||_sigma, lower bound", spectral, "close to 1 (figure)");
  add("||X||_Sigma, certified lower bound", lower, "-");
  add("||X||_Sigma, certified upper bound", upper, "-");
  table.rows.push_back({"share of momenta whose online set is not the balanced one",
                        string_printf("%.4f", share_of_other_sets(values)), "", "", "-"});
  if (const auto ratios = width_over_height(values); !ratios.empty())
    add("||M_{1,4}||_* / ||M_{1,3}||_* - 1", range(ratios), "-");
  table.notes = {"(X: solution of the online oracle for a momentum, computed by an SVD)"};
  return table;
}

ResultTable layer_table(const std::vector<Tightness>& values) {
  std::vector<std::string> layers;
  std::map<std::string, std::vector<Tightness>> by_layer;
  for (const auto& value : values) {
    if (!by_layer.contains(value.layer)) layers.push_back(value.layer);
    by_layer[value.layer].push_back(value);
  }
  ResultTable table{.title = "By layer",
                    .header = {"layer", "shape", "balanced", "mean gap", "max gap", "not balanced",
                               "||X||_sigma", "winning sets"},
                    .rows = {},
                    .alignment = "lllrrrrl"};
  for (const auto& layer : layers) {
    const auto& own = by_layer.at(layer);
    std::map<Modes, int64_t> wins;
    for (const auto& value : own) ++wins[value.online];
    std::vector<std::pair<Modes, int64_t>> ranked(wins.begin(), wins.end());
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    std::string winners;
    for (const auto& [modes, count] : ranked) {
      winners +=
          (winners.empty() ? "" : ", ") + paper_set(modes) +
          string_printf(" %.0f %%", 100 * static_cast<double>(count) / static_cast<double>(own.size()));
    }
    const auto gap = range(own, &Tightness::gap);
    table.rows.push_back({layer, c10::Join("x", own[0].shape), paper_set(own[0].balanced),
                          string_printf("%.4f", gap.mean), string_printf("%.4f", gap.max),
                          string_printf("%.0f %%", 100 * share_of_other_sets(own)),
                          string_printf("%.4f", range(own, &Tightness::spectral).mean), winners});
  }
  table.notes = {"(sets as in the paper, with modes counted from 1)"};
  return table;
}

}  // namespace tensorion::lab
