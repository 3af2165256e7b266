// Formatting, splitting and parsing strings.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace tensorion::lab {

// sprintf that returns a std::string.
template <typename... Values>
std::string string_printf(const char* pattern, Values... values) {
  const int size = std::snprintf(nullptr, 0, pattern, values...);
  std::string text(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(text.data(), text.size(), pattern, values...);
  text.pop_back();
  return text;
}

// Splits the text at every separator; empty parts are kept.
std::vector<std::string> split(const std::string& text, char separator);

// Prepares text for a message: truncates it to 80 characters and escapes it if it is not UTF-8.
std::string shortened(const std::string& text);

// Returns true if the text is valid UTF-8, as JSON requires.
bool is_utf8(const std::string& text);

// Returns the flag of an option: "--weight-decay" for "weight_decay".
std::string flag_name(std::string option);

// Parse the whole text as a number. `what` is its name in the error message.
double to_number(const std::string& text, const std::string& what);
int64_t to_integer(const std::string& text, const std::string& what);

}  // namespace tensorion::lab
