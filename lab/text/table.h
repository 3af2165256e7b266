// Printing text in aligned columns.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace tensorion::lab {

using TableRow = std::vector<std::string>;

// Prints the rows with each column as wide as its widest cell. `alignment` has one letter per column: 'l' or
// 'r'.
void print_rows(std::ostream& out, const std::vector<TableRow>& rows, const std::string& alignment);

}  // namespace tensorion::lab
