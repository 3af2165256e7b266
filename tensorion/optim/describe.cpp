// The table of the parameters of an optimizer that `describe` returns.
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "tensorion/param_groups.h"

namespace tensorion {
namespace {

using Row = std::vector<std::string>;
using Names = std::map<const void*, std::string>;

std::string format_number(double value) {
  std::ostringstream out;
  out.precision(4);
  out << value;
  return out.str();
}

// Returns "3x3", or for slices "8 x (512x2048)". Slices of different shapes are joined by " + ".
std::string format_shape(at::IntArrayRef shape, const Slicing& slicing) {
  if (slicing.is_whole()) return shape.empty() ? "scalar" : c10::Join("x", shape);
  const auto blocks = slicing.block_shapes(shape);
  std::vector<std::string> runs;
  for (size_t i = 0; i < blocks.size();) {
    size_t end = i;
    while (end < blocks.size() && blocks[end] == blocks[i]) ++end;
    runs.push_back(c10::str(static_cast<int64_t>(end - i) * slicing.batch_size(shape), " x (",
                            c10::Join("x", blocks[i]), ")"));
    i = end;
  }
  return c10::Join(" + ", runs);
}

void add_once(std::vector<std::string>& texts, const std::string& text) {
  if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
}

// Returns the cells with the unfolding, the size of the matrix and the scale. If slices differ, a cell has
// the distinct values of all of them.
Row unfolding_cells(at::IntArrayRef shape, const TensorionOptions& options, const Slicing& slicing) {
  if (options.unfolding().is_online()) return {"online", "", ""};
  std::vector<std::string> modes, matrices, scales;
  for (const auto& block : slicing.block_shapes(shape)) {
    const auto unfolding = options.unfolding().choose(block);
    add_once(modes, UnfoldingStrategy(unfolding.modes()).str());
    add_once(matrices, c10::str(unfolding.rows(), "x", unfolding.cols()));
    add_once(scales, format_number(adjusted_scale(unfolding, options.adjust_lr_fn())));
  }
  return {c10::Join(" + ", modes), c10::Join(" + ", matrices), c10::Join(" + ", scales)};
}

// Returns why this algorithm updates the parameter.
std::string reason_text(at::IntArrayRef shape, const TensorionOptions& options, const Slicing& slicing) {
  const bool is_tensorion = options.algorithm() == "tensorion";
  auto reason = fallback_reason(shape, options);
  if (is_tensorion != reason.empty()) return "its group";
  if (!is_tensorion) return reason;
  return slicing.is_whole() ? c10::str("order >= ", options.min_order()) : "slices";
}

// Returns the rows as text, with aligned columns.
std::string format_table(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string describe(const Tensorion& optimizer, const Names& names) {
  std::vector<Row> rows{
      {"group", "parameter", "shape", "algorithm", "why", "unfolding", "matrix", "scale", "lr"}};
  for (size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    const auto& group = optimizer.param_groups()[g];
    auto options = static_cast<const TensorionOptions&>(group.options());
    if (options.algorithm() != "tensorion") options.batch_modes({}).split_sizes({});
    const Slicing slicing{options.batch_modes(), options.split_sizes()};
    for (size_t i = 0; i < group.params().size(); ++i) {
      const auto& param = group.params()[i];
      const auto name = names.find(param.unsafeGetTensorImpl());
      Row row{std::to_string(g), name == names.end() ? std::to_string(i) : name->second,
              format_shape(param.sizes(), slicing), options.algorithm(),
              reason_text(param.sizes(), options, slicing)};
      const auto cells = options.algorithm() == "tensorion" ? unfolding_cells(param.sizes(), options, slicing)
                                                            : Row{"", "", ""};
      row.insert(row.end(), cells.begin(), cells.end());
      row.push_back(format_number(options.lr()));
      rows.push_back(std::move(row));
    }
  }
  return format_table(rows);
}

}  // namespace

std::string describe(const Tensorion& optimizer) { return describe(optimizer, Names()); }

std::string describe(const Tensorion& optimizer, const torch::nn::Module& module) {
  Names names;
  for (const auto& parameter : module.named_parameters()) {
    names.try_emplace(parameter.value().unsafeGetTensorImpl(), parameter.key());
  }
  return describe(optimizer, names);
}

}  // namespace tensorion
