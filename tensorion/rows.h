// Numbers of a table, row by row.
#pragma once

#include <cstddef>
#include <span>

namespace tensorion {

struct Rows {
  std::span<const double> all;
  size_t width;

  template <size_t Count, size_t Width>
  Rows(const double (&rows)[Count][Width])  // NOLINT(google-explicit-constructor)
      : all(&rows[0][0], Count * Width), width(Width) {}
  size_t count() const { return all.size() / width; }
  std::span<const double> operator[](size_t row) const { return all.subspan(row * width, width); }
};

}  // namespace tensorion
