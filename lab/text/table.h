// Text in aligned columns.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace tensorion::lab {

using TableRow = std::vector<std::string>;

// Columns as wide as their widest cell. `alignment` has a letter for each: 'l' or 'r'.
void print_rows(std::ostream& out, const std::vector<TableRow>& rows, const std::string& alignment);

}  // namespace tensorion::lab
