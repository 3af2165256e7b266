// Strings from numbers, and numbers from strings.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace tensorion::lab {

// What printf would print.
template <typename... Values>
std::string string_printf(const char* pattern, Values... values) {
  const int size = std::snprintf(nullptr, 0, pattern, values...);
  std::string text(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(text.data(), text.size(), pattern, values...);
  text.pop_back();
  return text;
}

// The parts between the separators: one more than there are of them.
std::vector<std::string> split(const std::string& text, char separator);

// The text for a message: what is left of it if it is long, and no bytes that a terminal cannot show.
std::string shortened(const std::string& text);

// Whether the bytes are UTF-8, as JSON needs them.
bool is_utf8(const std::string& text);

// The flag of an option: "--weight-decay" of "weight_decay".
std::string flag_name(std::string option);

// The whole text as a number; `what` names it in the error.
double to_number(const std::string& text, const std::string& what);
int64_t to_integer(const std::string& text, const std::string& what);

}  // namespace tensorion::lab
