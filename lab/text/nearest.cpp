#include "lab/text/nearest.h"

#include <algorithm>

namespace tensorion::lab {
namespace {

// The optimal string alignment distance: Damerau-Levenshtein without editing a substring twice.
size_t edit_distance(const std::string& from, const std::string& to) {
  std::vector<std::vector<size_t>> table(from.size() + 1, std::vector<size_t>(to.size() + 1));
  for (size_t i = 0; i <= from.size(); ++i) {
    for (size_t j = 0; j <= to.size(); ++j) {
      auto& entry = table[i][j];
      if (i == 0 || j == 0) {
        entry = i + j;
        continue;
      }
      const size_t replaced = table[i - 1][j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      entry = std::min({replaced, table[i - 1][j] + 1, table[i][j - 1] + 1});
      const bool is_swap = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (is_swap) entry = std::min(entry, table[i - 2][j - 2] + 1);
    }
  }
  return table[from.size()][to.size()];
}

}  // namespace

std::string nearest_name(const std::string& name, const std::vector<std::string>& known) {
  constexpr size_t kLongest = 100;  // all known names are shorter
  if (name.size() > kLongest) return "";
  std::string nearest;
  size_t fewest = std::max<size_t>(1, name.size() / 3) + 1;
  for (const auto& candidate : known) {
    const size_t distance = edit_distance(name, candidate);
    if (distance >= fewest) continue;
    fewest = distance;
    nearest = candidate;
  }
  return nearest;
}

std::string did_you_mean(const std::string& name, const std::vector<std::string>& known) {
  const auto nearest = nearest_name(name, known);
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

}  // namespace tensorion::lab
