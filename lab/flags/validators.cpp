#include "lab/flags/validators.h"

#include <c10/util/StringUtil.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <thread>

#include "lab/text/nearest.h"
#include "lab/text/strings.h"

namespace tensorion::lab {
namespace {

constexpr int64_t kMaxCount = int64_t{1} << 53;

// `description` is what --help shows. Values may have any length, so the error message shortens them.
CLI::Validator check(const std::string& description, const std::string& expected,
                     const std::function<bool(const std::string&)>& is_valid) {
  CLI::Validator validator(
      [=](const std::string& text) {
        return is_valid(text) ? std::string() : "must be " + expected + ", got '" + shortened(text) + "'";
      },
      description);
  return validator;
}

template <typename T>
bool parse(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && !text.empty();
}

CLI::Validator number(const std::string& description, const std::string& expected,
                      const std::function<bool(double)>& is_valid) {
  return check(description, expected, [=](const std::string& text) {
    double value = 0;
    return parse(text, value) && std::isfinite(value) && is_valid(value);
  });
}

}  // namespace

CLI::Validator whole_number(int64_t smallest, int64_t largest) {
  const auto from = std::to_string(smallest);
  const auto to = std::to_string(largest);
  const bool is_open = largest == kMaxCount;
  return check(is_open ? ">= " + from : from + " to " + to,
               is_open ? "an integer from " + from + " to 2^53" : "an integer from " + from + " to " + to,
               [=](const std::string& text) {
                 int64_t value = 0;
                 return parse(text, value) && value >= smallest && value <= largest;
               });
}

CLI::Validator positive_count() { return whole_number(1, kMaxCount); }
CLI::Validator non_negative_count() { return whole_number(0, kMaxCount); }

CLI::Validator positive_number() {
  return number("> 0", "a positive number", [](double value) { return value > 0; });
}

CLI::Validator non_negative_number() {
  return number(">= 0", "a non-negative number", [](double value) { return value >= 0; });
}

CLI::Validator number_in(double smallest, double end) {
  const auto range = string_printf("in [%g, %g)", smallest, end);
  return number(range, "a number " + range, [=](double value) { return value >= smallest && value < end; });
}

int64_t max_threads() {
  return std::max<int64_t>(64, 4 * static_cast<int64_t>(std::thread::hardware_concurrency()));
}

CLI::Validator thread_count() { return whole_number(1, max_threads()); }

CLI::Validator one_of(const std::vector<std::string>& names) {
  const auto description = "{" + c10::Join(",", names) + "}";
  return CLI::Validator(
      [names](const std::string& text) {
        if (std::find(names.begin(), names.end(), text) != names.end()) return std::string();
        return "must be one of " + c10::Join(", ", names) + ", got '" + shortened(text) + "'" +
               did_you_mean(text, names);
      },
      description);
}

CLI::Validator utf8_path() { return check("", "a path in UTF-8", is_utf8); }

}  // namespace tensorion::lab
