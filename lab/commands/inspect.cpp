#include "lab/commands/inspect.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <charconv>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "lab/experiments/convolution_norms.h"
#include "lab/flags/validators.h"
#include "lab/io/file.h"
#include "lab/io/safetensors.h"
#include "lab/models/models.h"
#include "lab/text/nearest.h"
#include "lab/text/strings.h"
#include "lab/text/table.h"
#include "lab/text/usage_error.h"
#include "tensorion/param_groups.h"
#include "tensorion/unfolding.h"

namespace tensorion::lab {
namespace {

struct NamedShape {
  std::string name;  // empty if only a shape was given
  std::vector<int64_t> shape;
  at::Tensor values;  // undefined if only a shape was given
};

// The shapes of all weights of an ImageNet model, except vectors.
std::vector<NamedShape> weights_of(const std::string& name) {
  std::vector<NamedShape> weights;
  const auto model = make_model({.name = name});
  for (const auto& parameter : model->named_parameters()) {
    if (parameter.value().dim() > 1)
      weights.push_back({parameter.key(), parameter.value().sizes().vec(), {}});
  }
  return weights;
}

std::vector<int64_t> parse_shape(const std::string& text) {
  std::vector<int64_t> shape;
  int64_t elements = 1;
  for (const auto& part : split(text, 'x')) {
    int64_t size = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), size);
    if (error != std::errc() || end != part.data() + part.size() || size < 1) {
      throw UsageError(
          "expected a shape of positive sizes such as 64x3x7x7, a model such as resnet18, or a "
          "safetensors file, got '" +
          shortened(text) + "'" + did_you_mean(text, model_names()));
    }
    if (size > std::numeric_limits<int64_t>::max() / elements) {
      throw UsageError("expected a shape with fewer than 2^63 elements, got '" + text + "'");
    }
    elements *= size;
    shape.push_back(size);
  }
  return shape;
}

// Parses shapes such as "64x3x7x7,512x512x3x3" or the name of a model.
std::vector<NamedShape> parse_shapes(const std::string& text) {
  const auto& models = model_names();
  if (std::find(models.begin(), models.end(), text) != models.end()) return weights_of(text);
  std::vector<NamedShape> tensors;
  for (const auto& part : split(text, ',')) tensors.push_back({"", parse_shape(part), {}});
  return tensors;
}

// Reads the floating-point tensors of a safetensors file.
std::vector<NamedShape> read_tensors(const std::string& path) {
  std::vector<NamedShape> tensors;
  for (const auto& [name, values] : read_safetensors(path).tensors) {
    if (values.is_floating_point()) tensors.push_back({name, values.sizes().vec(), values});
  }
  if (tensors.empty())
    throw std::invalid_argument("expected floating-point tensors, got none in '" + path + "'");
  return tensors;
}

// The norms of one unfolding of a tensor with values.
struct MatrixNorms {
  double nuclear = 0;   // the sum of the singular values
  double spectral = 0;  // the largest singular value
};

struct Inspected {
  NamedShape tensor;
  int64_t elements = 1;
  std::vector<Unfolding> unfoldings;
  size_t balanced = 0;  // the index of the balanced unfolding in `unfoldings`, if there are any
  double frobenius = 0;
  std::vector<MatrixNorms> norms;  // of each unfolding, if there are values
};

MatrixNorms matrix_norms(const at::Tensor& matrix) {
  const auto values = at::linalg_svdvals(matrix.to(at::promoteTypes(matrix.scalar_type(), at::kFloat)));
  return {values.sum(at::kDouble).item<double>(), values.max().item<double>()};
}

// The dual norm of the tensor (the maximum nuclear norm over the unfoldings) and an upper bound of its
// relaxed norm (the minimum spectral norm over the unfoldings).
MatrixNorms tensor_norms(const Inspected& tensor) {
  MatrixNorms result{0, std::numeric_limits<double>::infinity()};
  for (const auto& norms : tensor.norms) {
    result.nuclear = std::max(result.nuclear, norms.nuclear);
    result.spectral = std::min(result.spectral, norms.spectral);
  }
  return tensor.norms.empty() ? MatrixNorms{tensor.frobenius, tensor.frobenius} : result;
}

Inspected inspect(NamedShape tensor) {
  Inspected result;
  result.tensor = std::move(tensor);
  const auto& shape = result.tensor.shape;
  for (const int64_t size : shape) result.elements *= size;
  for (const auto& modes : unfoldings(shape)) result.unfoldings.emplace_back(shape, modes);
  if (!result.unfoldings.empty()) {
    const auto modes = balanced_unfolding(shape);
    result.balanced = std::find_if(result.unfoldings.begin(), result.unfoldings.end(),
                                   [&](const Unfolding& unfolding) { return unfolding.modes() == modes; }) -
                      result.unfoldings.begin();
  }
  if (result.tensor.values.defined()) {
    const auto& values = result.tensor.values;
    result.frobenius = at::linalg_vector_norm(values, 2, std::nullopt, false, at::kDouble).item<double>();
    for (const auto& unfolding : result.unfoldings)
      result.norms.push_back(matrix_norms(unfolding.unfold(values)));
  }
  return result;
}

// Floating-point operations of a step on an m x n unfolding, m <= n: the Gram matrix (m^2 n) and one product
// of an m x m matrix with the unfolding (2 m^2 n). Operations on m x m matrices depend on the method and are
// not counted.
double step_flop(int64_t rows, int64_t cols) {
  const auto m = static_cast<double>(std::min(rows, cols));
  const auto n = static_cast<double>(std::max(rows, cols));
  return 3 * m * m * n;
}

double gflop(const Unfolding& unfolding) { return step_flop(unfolding.rows(), unfolding.cols()) / 1e9; }

double balanced_gflop(const std::vector<Inspected>& tensors) {
  double total = 0;
  for (const auto& tensor : tensors) {
    if (!tensor.unfoldings.empty()) total += gflop(tensor.unfoldings[tensor.balanced]);
  }
  return total;
}

// The algorithm that updates the tensor if the optimizer has its default options.
std::string updated_by(const Inspected& entry) {
  return fallback_reason(entry.tensor.shape).empty() ? "tensorion" : "fallback";
}

nlohmann::ordered_json to_json(const std::vector<Inspected>& tensors) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& entry : tensors) {
    const auto& all = entry.unfoldings;
    auto choices = nlohmann::ordered_json::array();
    for (size_t i = 0; i < all.size(); ++i) {
      choices.push_back({{"modes", all[i].modes()},
                         {"rows", all[i].rows()},
                         {"cols", all[i].cols()},
                         {"gflop", gflop(all[i])},
                         {"balanced", i == entry.balanced}});
      if (!entry.norms.empty()) {
        choices.back()["nuclear_norm"] = entry.norms[i].nuclear;
        choices.back()["spectral_norm"] = entry.norms[i].spectral;
      }
    }
    list.push_back({{"name", entry.tensor.name},
                    {"shape", entry.tensor.shape},
                    {"order", parameter_order(entry.tensor.shape)},
                    {"update", updated_by(entry)},
                    {"elements", entry.elements},
                    {"unfoldings", std::move(choices)}});
    if (entry.tensor.values.defined()) {
      const auto norms = tensor_norms(entry);
      list.back()["frobenius_norm"] = entry.frobenius;
      list.back()["dual_norm"] = norms.nuclear;
      list.back()["relaxed_norm_at_most"] = norms.spectral;
    }
  }
  return {{"tensors", std::move(list)}, {"balanced_gflop", balanced_gflop(tensors)}};
}

std::string short_number(double value) { return string_printf("%.3g", value); }

// Prints one block of rows per shape, labelled with the first tensor of that shape. If there are values,
// every tensor has its own block with the norms of its unfoldings.
void print_table(const std::vector<Inspected>& tensors) {
  const bool named =
      std::any_of(tensors.begin(), tensors.end(), [](const auto& t) { return !t.tensor.name.empty(); });
  const bool valued =
      std::any_of(tensors.begin(), tensors.end(), [](const auto& t) { return t.tensor.values.defined(); });
  std::vector<TableRow> rows{{"tensor", "shape", "order", "update", "modes", "rows", "cols", "GFLOP", ""}};
  if (valued) rows[0].insert(rows[0].begin() + 8, {"nuclear", "spectral"});
  int64_t elements = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& entry = tensors[i];
    const auto& all = entry.unfoldings;
    elements += entry.elements;
    const auto alike = [&](const Inspected& other) {
      return !valued && other.tensor.shape == entry.tensor.shape;
    };
    if (std::any_of(tensors.begin(), tensors.begin() + i, alike)) continue;
    const auto others = std::count_if(tensors.begin() + i + 1, tensors.end(), alike);
    TableRow first{entry.tensor.name + (others > 0 ? " (+" + std::to_string(others) + " of this shape)" : ""),
                   c10::Join("x", entry.tensor.shape), std::to_string(parameter_order(entry.tensor.shape)),
                   updated_by(entry)};
    const auto add = [&](TableRow row, const MatrixNorms& norms, const std::string& remark) {
      row.insert(row.begin(), first.begin(), first.end());
      if (valued) row.insert(row.end(), {short_number(norms.nuclear), short_number(norms.spectral)});
      row.push_back(remark);
      rows.push_back(std::move(row));
    };
    if (all.empty()) add({"-", "-", "-", "-"}, tensor_norms(entry), "no unfolding");
    for (size_t j = 0; j < all.size(); ++j) {
      if (j == 1) first = {"", "", "", ""};
      add({"{" + c10::Join(",", all[j].modes()) + "}", std::to_string(all[j].rows()),
           std::to_string(all[j].cols()), short_number(gflop(all[j]))},
          valued ? entry.norms[j] : MatrixNorms{}, j == entry.balanced ? "balanced" : "");
    }
  }
  if (!named) {
    for (auto& row : rows) row.erase(row.begin());
  }
  print_rows(std::cout, rows, (named ? "l" : "") + std::string("lrllrrr") + (valued ? "rr" : "") + "l");
  std::cout
      << '\n'
      << tensors.size() << (tensors.size() == 1 ? " tensor, " : " tensors, ") << elements
      << " elements; a step on the balanced unfoldings: " << short_number(balanced_gflop(tensors))
      << " GFLOP\n"
      << "(order: number of modes without leading modes of size 1; GFLOP: m^2 n for the Gram matrix and "
         "2 m^2 n for one product, m <= n)\n";
  if (valued) {
    std::cout << "(nuclear, spectral: norms of the unfolding; the tensor's dual norm is the largest nuclear "
                 "norm, and its relaxed norm is at most the smallest spectral norm)\n";
  }
}

void show_convolutions(const std::string& path, const ConvolutionOptions& options, bool json) {
  const auto norms = convolution_norms(read_safetensors(path).tensors, options);
  if (norms.empty())
    throw std::invalid_argument("expected convolution kernels larger than 1 x 1, got none in '" + path + "'");
  if (json) {
    auto list = nlohmann::ordered_json::array();
    for (const auto& layer : norms) list.push_back(to_json(layer));
    std::cout << list.dump(2) << '\n';
  } else {
    print_table(std::cout, convolution_table(norms, options));
  }
}

}  // namespace

void add_inspect(CLI::App& program) {
  struct Options {
    std::string shapes;
    bool json = false;
    ConvolutionOptions convolution{.size = 0};
  };
  const auto options = std::make_shared<Options>();
  auto* command = program.add_subcommand("inspect", "Show the unfoldings of tensors and the cost of a step");
  command
      ->add_option("shapes", options->shapes,
                   "Shapes such as 64x3x7x7,512x512x3x3, a model such as resnet18, or FILE.safetensors")
      ->required();
  command->add_flag("--json", options->json, "Print JSON instead of a table");
  command
      ->add_option(
          "--convolution", options->convolution.size,
          "Show the norms of the kernels in the file as convolutions on inputs of this height and width")
      ->check(positive_count());
  command
      ->add_option("--certify", options->convolution.certified,
                   "With --convolution: certify the relaxed norm of kernels with at most this many elements")
      ->check(non_negative_count())
      ->capture_default_str();
  command->callback([options] {
    std::vector<Inspected> tensors;
    const bool file = options->shapes.ends_with(".safetensors") || is_file(options->shapes);
    if (options->convolution.size > 0) {
      if (!file) throw UsageError("--convolution requires a safetensors file, got '" + options->shapes + "'");
      show_convolutions(options->shapes, options->convolution, options->json);
      return;
    }
    for (auto& tensor : file ? read_tensors(options->shapes) : parse_shapes(options->shapes))
      tensors.push_back(checked_usage([&] { return inspect(std::move(tensor)); }));
    if (options->json) {
      std::cout << to_json(tensors).dump(2) << '\n';
    } else {
      print_table(tensors);
    }
  });
}

}  // namespace tensorion::lab
