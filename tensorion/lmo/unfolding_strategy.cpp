#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "tensorion/lmo.h"
#include "tensorion/lmo/direction.h"

namespace tensorion {
namespace {

// Returns the unfolding of a shape in which at most one mode has a size other than 1: a column.
Unfolding column_unfolding(at::IntArrayRef shape) {
  TORCH_CHECK_VALUE(!shape.empty(), "[tensorion.lmo] expected a tensor with at least one mode, got a scalar");
  for (int64_t mode = 0; mode < static_cast<int64_t>(shape.size()); ++mode) {
    if (shape[mode] != 1) return {shape, {mode}};
  }
  return {shape, {0}};
}

}  // namespace

UnfoldingStrategy::UnfoldingStrategy(const std::string& name) : online_(name == "online") {
  TORCH_CHECK_VALUE(online_ || name == "balanced",
                    "[tensorion.lmo] unfolding must be 'balanced', 'online' or a set of modes, got '", name,
                    "'");
}

Unfolding UnfoldingStrategy::choose(at::IntArrayRef shape) const {
  if (modes_) return {shape, *modes_};
  if (effective_order(shape) < 2) return column_unfolding(shape);
  return {shape, balanced_unfolding(shape)};
}

int64_t unfolding_index(const Unfolding& unfolding) {
  if (effective_order(unfolding.shape()) < 2) return 0;
  const auto all = unfoldings(unfolding.shape());
  const auto match = std::find(all.begin(), all.end(), unfolding.canonical());
  return match == all.end() ? 0 : match - all.begin();
}

Unfolding unfolding_at(at::IntArrayRef shape, int64_t index) {
  if (effective_order(shape) < 2) return column_unfolding(shape);
  const auto all = unfoldings(shape);
  TORCH_CHECK_VALUE(index >= 0 && index < static_cast<int64_t>(all.size()),
                    "[tensorion.lmo] index of an unfolding of shape ", shape, " must be in [0, ", all.size(),
                    "), got ", index);
  return {shape, all[index]};
}

std::string UnfoldingStrategy::str() const {
  if (online_) return "online";
  if (!modes_) return "balanced";
  std::ostringstream out;
  out << "(";
  for (size_t i = 0; i < modes_->size(); ++i) out << (i ? ", " : "") << (*modes_)[i];
  out << (modes_->size() == 1 ? ",)" : ")");
  return out.str();
}

UnfoldingStrategy UnfoldingStrategy::parse(const std::string& text) {
  if (text.empty() || text.front() != '(') return text;
  const auto expect = [&](bool holds) {
    TORCH_CHECK_VALUE(holds, "[tensorion.lmo] expected modes such as '(0, 2)', got '", text, "'");
  };
  size_t position = 1;
  const auto skip_spaces = [&] {
    position = std::min(text.find_first_not_of(" \t\n", position), text.size());
  };
  Modes modes;
  for (skip_spaces(); position < text.size() && text[position] != ')'; skip_spaces()) {
    expect(text[position] >= '0' && text[position] <= '9');
    const auto [stop, error] =
        std::from_chars(text.data() + position, text.data() + text.size(), modes.emplace_back());
    expect(error == std::errc());
    position = stop - text.data();
    skip_spaces();
    expect(position < text.size() && (text[position] == ',' || text[position] == ')'));
    if (text[position] == ',') ++position;
  }
  expect(position + 1 == text.size());
  return modes;
}

}  // namespace tensorion
