#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "tensorion/lmo.h"
#include "tensorion/lmo/direction.h"

namespace tensorion {
namespace {

// The one unfolding of a shape of effective order 0 or 1: a column.
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

int64_t unfolding_number(const Unfolding& unfolding) {
  if (effective_order(unfolding.shape()) < 2) return 0;
  const auto all = unfoldings(unfolding.shape());
  const auto place = std::find(all.begin(), all.end(), unfolding.canonical());
  return place == all.end() ? 0 : place - all.begin();
}

Unfolding numbered_unfolding(at::IntArrayRef shape, int64_t number) {
  if (effective_order(shape) < 2) return column_unfolding(shape);
  const auto all = unfoldings(shape);
  TORCH_CHECK_VALUE(number >= 0 && number < static_cast<int64_t>(all.size()),
                    "[tensorion.lmo] expected the number of one of ", all.size(), " unfoldings of shape ",
                    shape, ", got ", number);
  return {shape, all[number]};
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
  size_t place = 1;
  const auto skip_spaces = [&] { place = std::min(text.find_first_not_of(" \t\n", place), text.size()); };
  Modes modes;
  for (skip_spaces(); place < text.size() && text[place] != ')'; skip_spaces()) {
    expect(text[place] >= '0' && text[place] <= '9');
    const auto [stop, error] =
        std::from_chars(text.data() + place, text.data() + text.size(), modes.emplace_back());
    expect(error == std::errc());
    place = stop - text.data();
    skip_spaces();
    expect(place < text.size() && (text[place] == ',' || text[place] == ')'));
    if (text[place] == ',') ++place;
  }
  expect(place + 1 == text.size());
  return modes;
}

}  // namespace tensorion
