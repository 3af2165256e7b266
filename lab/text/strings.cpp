#include "lab/text/strings.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

namespace tensorion::lab {
namespace {

template <typename T>
T parse(const std::string& text, const std::string& what, const char* kind) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  TORCH_CHECK_VALUE(error == std::errc() && stop == end && !text.empty(), what, " must be ", kind, ", got '",
                    text, "'");
  return value;
}

}  // namespace

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string shortened(const std::string& text) {
  constexpr size_t kLongest = 80;
  auto kept = text.size() <= kLongest ? text : text.substr(0, kLongest - 3) + "...";
  if (is_utf8(kept)) return kept;
  const auto quoted = nlohmann::json(kept).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return quoted.substr(1, quoted.size() - 2);
}

bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
  return true;
}

std::string flag_name(std::string option) {
  std::replace(option.begin(), option.end(), '_', '-');
  return "--" + option;
}

double to_number(const std::string& text, const std::string& what) {
  return parse<double>(text, what, "a number");
}

int64_t to_integer(const std::string& text, const std::string& what) {
  return parse<int64_t>(text, what, "an integer");
}

}  // namespace tensorion::lab
