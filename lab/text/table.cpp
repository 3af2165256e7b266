#include "lab/text/table.h"

#include <algorithm>
#include <ostream>

namespace tensorion::lab {

void print_rows(std::ostream& out, const std::vector<TableRow>& rows, const std::string& alignment) {
  std::vector<size_t> widths(alignment.size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      line += (i > 0 ? "  " : "") + (alignment[i] == 'r' ? space + row[i] : row[i] + space);
    }
    out << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
}

}  // namespace tensorion::lab
