#include "lab/text/result_table.h"

#include <nlohmann/json.hpp>
#include <ostream>

namespace tensorion::lab {

nlohmann::ordered_json to_json(const ResultTable& table) {
  return {{"title", table.title},
          {"header", table.header},
          {"rows", table.rows},
          {"alignment", table.alignment},
          {"notes", table.notes}};
}

void print_table(std::ostream& out, const ResultTable& table) {
  auto rows = table.rows;
  rows.insert(rows.begin(), table.header);
  out << table.title << '\n';
  print_rows(out, rows, table.alignment);
  for (const auto& note : table.notes) out << note << '\n';
  out << '\n';
}

}  // namespace tensorion::lab
