// A table of results. Commands print it and store it in summary.json, where `tensorion report` reads it.
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
  std::string alignment;  // one letter per column: 'l' or 'r'
  std::vector<std::string> notes = {};
};

nlohmann::ordered_json to_json(const ResultTable& table);
void print_table(std::ostream& out, const ResultTable& table);

}  // namespace tensorion::lab
