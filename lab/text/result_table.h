// A table of results: printed by the program, and read from summary.json by `tensorion report`.
#pragma once

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/text/table.h"

namespace tensorion::lab {

struct ResultTable {
  std::string title;
  TableRow header;
  std::vector<TableRow> rows;
  std::string alignment;  // a letter for each column: 'l' or 'r'
  std::vector<std::string> notes = {};
};

nlohmann::ordered_json to_json(const ResultTable& table);
void print_table(std::ostream& out, const ResultTable& table);

}  // namespace tensorion::lab
